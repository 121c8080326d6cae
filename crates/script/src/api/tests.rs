//! Natives called as no script of ours calls them: with everything odd there is, in every place.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mruby::{Datum, MethodOf};

use super::CHAPTERS;
use super::chapter::{Chapter, Method};
use crate::interpreter::Interpreter;
use crate::phase::Phase;
use crate::script::{Script, Source};
use crate::settings::{Budgets, ServerClass, Settings};
use crate::trial::{Files, Trial};

/// What a native is called with, and on what.
const HOSTILE: &str = r##"
module Hostile
  class Raising; def to_s; raise 'no text'; end; end
  class NoText; def to_s; 5; end; end
  class Text < String; end
  class List < Array; end
  class Table < Hash; end
  class Emptying
    def initialize(list) @list = list end
    def to_s; @list.clear; GC.start; 'x' * 50; end
  end
  SPANS = [[], [nil, nil], [99, -5], [-1, 2], [0, 99], ['a', :b], [2, 1], [0, 1] * 300, [1 << 60, 1 << 60], 5, nil, 'ab']
  def self.match(string, spans)
    match = MatchData.new(Regexp.new('a'), 'abc', [0, 1])
    match.instance_variable_set(:@string, string)
    match.instance_variable_set(:@spans, spans)
    match
  end
  def self.shapes
    within = []
    within << within
    itself = {}
    itself[:itself] = itself
    deep = nil
    200.times { deep = [deep] }
    [
      nil, true, false, 0, 1, -1, 64, 1 << 40, 1 << 61, -(1 << 61), 1.5, -0.0, 0.0 / 0, 1.0 / 0, :name, :"", :"a b",
      '', 'a', "\0\xff", 'x' * 70_000, 'namespace', Text.new('text'), 'frozen'.freeze, [], [nil] * 70, [1, [2, [3]]],
      List.new(3) { 'a' }, within, deep, {}, { 1 => 2 }, { namespace: 'n', 'a' => [nil] }, Table.new, itself, Object.new,
      Raising.new, NoText.new, Class, Nagaya, Kernel, -> { 1 }, 1..2, Time.now, Fiber.new { 1 }, Nginx::Request.new,
      Nginx::Request.allocate, Regexp.new('(a)(?<b>b)?'), Regexp.allocate, Cache.new(namespace: 'n'), Cache.allocate,
      Mutex.new, RuntimeError.new('e'), *SPANS.map { |spans| match('abc', spans) }, match(nil, [0, 1]), match(5, nil)
    ]
  end
  def self.receivers(owner)
    made = [-> { owner.allocate }, -> { owner.new }, -> { owner.new('a') }, -> { Class.new(owner).allocate },
            -> { owner.new(namespace: 'n') }, -> { owner.new.dup }, -> { owner.new.freeze }]
    all = made.map { |make| once { make.call } }
    all << Object.new unless owner.is_a?(Class)
    all.compact
  end
  # Within a Fiber nothing can wait: what wants to raises.
  def self.once
    done = nil
    Fiber.new { begin; done = yield; rescue Exception; end }.resume
    done
  rescue Exception
    nil
  end
  def self.told
    [$~, $&, $`, $', $+, $1, $9].each { |told| told.to_s rescue nil }
  end
  def self.call(path, name, of_class, least, most)
    owner = path.split('::').inject(Object) { |outer, inner| outer.const_get(inner) }
    of_class ? [owner].each { |one| on(one, name, least, most) } : receivers(owner).each { |one| on(one, name, least, most) }
    shapes.each { |other| once { owner.instance_method(name).bind(other).call(*([other] * least)) } } unless of_class
    told
  end
  def self.on(receiver, name, least, most)
    shapes = self.shapes
    (least..[most, least + 3].min).each do |count|
      0.step(count == 0 ? 0 : shapes.size - 1, STEP) do |first|
        (count < 2 ? [1] : [1, 19]).each do |apart|
          given = (0...count).map { |place| shapes[(first + place * apart) % shapes.size] }
          once { receiver.__send__(name, *given) }
        end
      end
    end
    emptied = ['a' * 40, 'b' * 40]
    (0...most - 2).first(2).each { emptied << 'c' * 40 }
    emptied[-1] = Emptying.new(emptied)
    once { receiver.__send__(name, *emptied.first(most)) }
    once { receiver.__send__(name, *([1] * 65)) }
    once { receiver.__send__(name, a: 1, b: 'c') }
    once { receiver.method(name).call('a') }
    once { [receiver].each(&name) }
  end
end
"##;

fn interpreter() -> Rc<Interpreter> {
    let budgets = Budgets {
        cpu: Duration::from_secs(600),
        ..Budgets::default()
    };
    let settings = Settings {
        server: ServerClass::Nginx,
        budgets,
        env: Vec::new(),
        cache_files: Arc::default(),
        library: Arc::default(),
        worker: 0,
        reader: Rc::new(Files),
    };
    Interpreter::open(settings, Arc::default()).expect("an interpreter opens")
}

fn code(text: &str) -> Script {
    let text = Arc::from(text.as_bytes());
    Script::new(Arc::from("script.rb"), Source::Code { text, line: 1 })
}

fn on_a_worker(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime starts");
    tokio::task::LocalSet::new().block_on(&runtime, test);
}

async fn value(interpreter: &Rc<Interpreter>, text: &str) -> Datum {
    let mut request = Trial::get("/a.php?x=1");
    let script = code(text);
    let ran = interpreter.run(Phase::Access, &script, Some(&mut request));
    ran.await
        .unwrap_or_else(|failure| panic!("{text}: {failure}"))
        .value
}

async fn survives(interpreter: &Rc<Interpreter>, class: &str, name: &str, method: &Method) {
    let of_class = method.of == MethodOf::Class;
    let (least, most) = (method.takes.least, method.takes.most);
    let text = format!("Hostile.call({class:?}, {name:?}.to_sym, {of_class}, {least}, {most}); 41");
    assert_eq!(value(interpreter, &text).await, Datum::Int(41), "{text}");
}

#[test]
fn natives_survive_whatever_they_are_called_with() {
    on_a_worker(async {
        let interpreter = interpreter();
        // Where a collection comes with every allocation, a part has to do.
        let is_slow = std::env::var_os("NAGAYA_PATIENCE").is_some();
        let step = if is_slow { 13 } else { 1 };
        value(&interpreter, &format!("module Hostile; STEP = {step}; end")).await;
        value(&interpreter, HOSTILE).await;
        let chapters: Vec<&Chapter> = CHAPTERS.to_vec();
        for method in chapters.iter().flat_map(|chapter| chapter.methods) {
            for class in method.classes {
                for name in method.names {
                    survives(&interpreter, class, name, method).await;
                }
            }
        }
        value(&interpreter, "Hostile.call('Nagaya', :__last, true, 1, 1)").await;
        value(&interpreter, "(Hostile.shapes.reject { |x| x.is_a?(Integer) } + [0, -1, 1 << 40]).each { |x| Hostile.once { Nagaya.__run(x) } }").await;
        assert_eq!(
            value(&interpreter, "'abc'[/b/] + 'd'").await,
            Datum::from("bd")
        );
    });
}
