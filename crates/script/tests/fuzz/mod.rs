//! Writes scripts that nobody would write.

/// A sequence of numbers that follows from its seed (SplitMix64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0xd134_2543_de82_ef95))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(end).unwrap_or(1)).unwrap_or(0)
    }

    fn of<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len())]
    }

    fn line_of(&mut self, lines: &'static str) -> &'static str {
        let at = self.below(lines.lines().count());
        lines.lines().nth(at).unwrap_or("nil")
    }

    fn word_of(&mut self, words: &'static str) -> &'static str {
        let at = self.below(words.split_whitespace().count());
        words.split_whitespace().nth(at).unwrap_or("to_s")
    }

    fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// Objects whose answers are never what is asked for, and which change the receiver of the call
/// they are given to (`$r`) meanwhile. `$x` is what the call before answered.
pub(crate) const HOSTILE: &str = include_str!("hostile.rb");

/// What anything is called with.
const VALUES: &str = include_str!("values.txt");

/// What a block or a method of a hostile object does.
const EVIL: &str = include_str!("evil.txt");

/// Classes written in C, whose methods are called more often.
const CORE: &str = include_str!("core.txt");

const NAMES: &str = include_str!("names.txt");

pub(crate) struct Writer<'a> {
    random: &'a mut Random,
    known: &'a [String],
    depth: usize,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(random: &'a mut Random, known: &'a [String]) -> Self {
        Self {
            random,
            known,
            depth: 0,
        }
    }

    pub(crate) fn script(&mut self) -> String {
        let mut text = String::from("def go(*a, &b)\nv0 = v1 = v2 = v3 = nil\n");
        for _ in 0..4 + self.random.below(16) {
            let statement = self.statement();
            text.push_str(&format!(
                "begin; {statement}; rescue Exception; $x = $!; end\n"
            ));
        }
        text.push_str("end\ngo(1, 2) { |*a| evil }\n");
        text
    }

    fn statement(&mut self) -> String {
        match self.random.below(40) {
            0 => self.reopened(),
            1 => self.syntax(),
            2 => self.fiber(),
            3 => self.bound(),
            4 => self.changed_class(),
            _ => self.told_call(),
        }
    }

    fn told_call(&mut self) -> String {
        let variable = self.variable();
        let call = self.call();
        format!("$x = {variable} = ({call})")
    }

    fn variable(&mut self) -> &'static str {
        self.random.of(&["v0", "v1", "v2", "v3"])
    }

    /// A class, whether the method is the class's own, and a method of it.
    fn method(&mut self) -> (&'a str, bool, &'a str) {
        loop {
            let line = &self.known[self.random.below(self.known.len())];
            // What is written in C is called more often.
            if !CORE
                .split_whitespace()
                .any(|core| line.split(' ').next() == Some(core))
                && self.random.percent(75)
            {
                continue;
            }
            let mut words = line.split(' ').filter(|word| !word.is_empty());
            let (Some(class), Some(kind)) = (words.next(), words.next()) else {
                continue;
            };
            let methods: Vec<&str> = words.collect();
            if !methods.is_empty() {
                return (
                    class,
                    kind == "c",
                    methods[self.random.below(methods.len())],
                );
            }
        }
    }

    fn class(&mut self) -> &'a str {
        let line = &self.known[self.random.below(self.known.len())];
        line.split(' ').next().unwrap_or("Object")
    }

    fn call(&mut self) -> String {
        let (class, of_class, mut name) = self.method();
        let receiver = match of_class {
            true if self.random.percent(90) => class.to_owned(),
            true => format!("Class.new({class})"),
            false => self.instance(class),
        };
        if self.random.percent(10) {
            name = self.random.word_of(NAMES);
        }
        self.call_of(&receiver, name)
    }

    fn call_of(&mut self, receiver: &str, name: &str) -> String {
        let count = match self.random.below(60) {
            0 => 70,
            1 => 17,
            2 => 6,
            many => [0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 3, 4][many % 13],
        };
        let mut arguments: Vec<String> = (0..count).map(|_| self.value()).collect();
        if self.random.percent(6) {
            arguments.push(format!("*{}", self.value()));
        }
        if self.random.percent(5) {
            let (name, value) = (
                self.random.of(&[
                    "a",
                    "b",
                    "half",
                    "exception",
                    "freeze",
                    "in",
                    "seed",
                    "random",
                    "chomp",
                    "step",
                    "by",
                    "keyword_init",
                ]),
                self.value(),
            );
            arguments.push(format!("{name}: {value}"));
        }
        if self.random.percent(3) {
            arguments.push(format!("**{}", self.value()));
        }
        let mut tail = String::new();
        match self.random.below(10) {
            0..=3 => tail = self.block(),
            4 => arguments.push(format!("&({})", self.value())),
            _ => {}
        }
        let keep = self.random.percent(60);
        let set = match keep {
            true => format!("($r = ({receiver}))"),
            false => format!("({receiver})"),
        };
        let plain = name.ends_with(|last: char| last.is_alphanumeric() || "_?!".contains(last))
            && name.starts_with(|first: char| first.is_lowercase() || first == '_');
        let arguments = arguments.join(", ");
        if plain && self.random.percent(70) {
            format!("{set}.{name}({arguments}){tail}")
        } else if plain || self.random.percent(90) {
            let comma = if arguments.is_empty() { "" } else { ", " };
            format!("{set}.__send__(:\"{name}\"{comma}{arguments}){tail}")
        } else {
            format!(
                "$n = :\"{name}\"; $a = [{}]; {set}.__send__($n, *$a){tail}",
                self.value()
            )
        }
    }

    #[allow(clippy::too_many_lines, reason = "a table: a line for each class")]
    fn instance(&mut self, class: &str) -> String {
        match self.random.below(20) {
            0 => return self.value(),
            1 => return format!("{class}.allocate"),
            2 => return format!("Class.new({class}).new"),
            3 => return format!("Class.new({class}).allocate"),
            4 => return self.variable().to_owned(),
            _ => {}
        }
        let of = |given: &'static [&'static str]| Some(given);
        let known: Option<&[&str]> = match class {
            "String" => of(&[
                "\"abc\"",
                "\"\"",
                "\"äöü日本\".dup",
                "(\"abc\" * 50)",
                "\"a,b,c\\n\" * 3",
                "LyingString.new(\"abcdef\")",
                "\"1234\"",
                "\"\\xff\\xfeabc\"",
                "(\"a\" * 200)[3, 100]",
                "\"abc\".freeze",
                ":abc.to_s",
                "$x.to_s",
            ]),
            "Array" => of(&[
                "[]",
                "[1, 2, 3]",
                "[3, 1, 2, nil, \"a\"]",
                "(0..50).to_a",
                "(0..50).to_a[3, 30]",
                "[[1, 2], [3, 4]]",
                "LyingArray.new([1, 2, 3])",
                "[1, 2, 3].freeze",
                "Array.new(20) { |i| \"s#{i}\" }",
                "Cyclic.make",
                "Array.new(17, 1).tap { |x| 5.times { x.shift } }",
                "[Liar.new] * 5",
                "[$x, $r]",
            ]),
            "Hash" => of(&[
                "{}",
                "{a: 1, b: 2}",
                "(0..40).map { |i| [i, i] }.to_h",
                "{1 => 2}.freeze",
                "Hash.new { |h, k| h[k] = k }",
                "Hash.new(5)",
                "LyingHash.new",
                "Cyclic.hash",
                "{Liar.new => 1, Evil.new => 2}",
                "{[] => 1, \"a\" => 2}",
                "(0..20).map { |i| [Liar.new, i] }.to_h",
            ]),
            "Integer" => of(&[
                "0",
                "1",
                "-1",
                "7",
                "255",
                "9223372036854775807",
                "(-9223372036854775807 - 1)",
                "4611686018427387904",
            ]),
            "Float" => of(&[
                "0.0",
                "1.5",
                "-2.5",
                "Float::NAN",
                "Float::INFINITY",
                "1e308",
            ]),
            "Range" => of(&[
                "(1..3)",
                "(1...1)",
                "(1..)",
                "(..1)",
                "(\"a\"..\"e\")",
                "(Liar.new..Liar.new)",
                "(1.0..2.0)",
                "(0..9223372036854775807)",
                "Range.new(1, 2)",
                "(Evil.new..3 rescue 1..2)",
            ]),
            "Proc" => of(&[
                "proc { |a, b| evil }",
                "lambda { |a, *b, c: 1| evil }",
                "proc { }",
                ":to_s.to_proc",
                "method(:evil).to_proc",
                "(proc { |a| a } >> proc { |b| b })",
                "proc { return }",
                "proc { break }",
            ]),
            "Fiber" => of(&[
                "Fiber.new { |x| Fiber.yield(x); evil }",
                "Fiber.new { evil }",
                "Fiber.current",
                "Fiber.new { Fiber.new { Fiber.yield; evil }.resume }.tap(&:resume)",
            ]),
            "Method" => of(&[
                "method(:evil)",
                "[1, 2].method(:each)",
                "\"a\".method(:+)",
                "Liar.new.method(:foo)",
                "5.method(:+)",
                "Fiber.new { evil }.method(:resume)",
            ]),
            "UnboundMethod" => of(&[
                "Array.instance_method(:each)",
                "String.instance_method(:sub)",
                "Kernel.instance_method(:dup)",
                "Proc.instance_method(:call)",
                "Fiber.instance_method(:resume)",
            ]),
            "Symbol" => of(&[":a", ":to_s", ":+", ":\"a b\"", ":@a"]),
            "Struct" => of(&[
                "Struct.new(:a, :b).new(1, 2)",
                "Struct.new(:a).new([1])",
                "Struct.new(:a, :b, keyword_init: true).new(a: 1)",
                "Struct.new(:a, :b).new(Liar.new, Evil.new)",
                "Struct.new(*(:a..:z).to_a).new(*(1..26))",
                "Struct.new(:a).allocate",
            ]),
            "Data" => of(&[
                "Data.define(:a, :b).new(1, 2)",
                "Data.define(:a).new(a: [1])",
                "Data.define(:a).allocate",
                "Data.define.new",
            ]),
            "Enumerator" => of(&[
                "[1, 2, 3].each",
                "Enumerator.new { |y| y << 1; evil; y << 2 }",
                "[1].each_with_index",
                "(1..3).each_slice(2)",
                "Liar.new.to_enum(:foo)",
                "loop",
            ]),
            "Enumerator::Lazy" => of(&[
                "(1..20).lazy",
                "[3, 1, 2].lazy.map { evil }",
                "(1..3).lazy.select { true }",
            ]),
            "Set" => of(&[
                "Set.new([1, 2, 3])",
                "Set.new",
                "Set.new([Liar.new])",
                "Set.new([[1], [2]]).freeze",
            ]),
            "Time" => of(&[
                "Time.now",
                "Time.at(0)",
                "Time.at(1e15)",
                "Time.gm(2000, 2, 29)",
                "Time.local(1970)",
            ]),
            "Random" => of(&["Random.new", "Random.new(3)"]),
            "Rational" => of(&["Rational(1, 3)", "3r", "Rational(-9223372036854775807, 2)"]),
            "Complex" => of(&["Complex(1, 2)", "Complex(1.5, -2)", "3i"]),
            "Exception" => of(&[
                "Exception.new(\"x\")",
                "(raise \"a\" rescue $!)",
                "StandardError.new(Liar.new)",
                "(nil.foo rescue $!)",
                "(evil_raise rescue $!)",
            ]),
            "Class" => of(&[
                "Class.new",
                "String",
                "Class.new(String)",
                "Class.new(Array) { def each; evil; end }",
                "Proc",
                "Integer",
                "BasicObject",
                "Class",
                "Liar",
                "Liar.singleton_class",
                "nil.singleton_class",
                "Class.new(Class.new(Fiber))",
            ]),
            "Module" => of(&[
                "Module.new",
                "Kernel",
                "Comparable",
                "Enumerable",
                "Module.new { def each; evil; end }",
                "Class.new",
            ]),
            "Enumerable" => of(&[
                "Liar.new",
                "LyingArray.new([1, 2, 3])",
                "Odd.each",
                "(1..10)",
                "{a: 1, b: 2}",
                "Struct.new(:a, :b).new(1, 2)",
            ]),
            "Comparable" => of(&["Odd.compares", "\"a\"", "1", "Liar.new"]),
            "Binding" => of(&[
                "binding",
                "proc { |z| binding }.call(1)",
                "proc { }.binding",
            ]),
            "Regexp" => of(&[
                "Regexp.new(\"a(b)?\")",
                "/a(.)c/i",
                "/(?<x>a)|(b)/",
                "/\\s*/",
            ]),
            "MatchData" => of(&["/(a)(b)?/.match(\"xab\")", "/(?<x>.)/.match(\"ä\")"]),
            "Kernel" | "Object" | "BasicObject" => None,
            _ => Some(&[]),
        };
        match known {
            Some([]) if class.starts_with(|c: char| c.is_uppercase()) => {
                let count = self.random.below(4);
                let arguments: Vec<String> = (0..count).map(|_| self.value()).collect();
                format!("{class}.new({})", arguments.join(", "))
            }
            Some(given) => self.random.of(given).to_owned(),
            None => self.value(),
        }
    }

    fn value(&mut self) -> String {
        if self.depth > 2 {
            return self.random.line_of(VALUES).to_owned();
        }
        self.depth += 1;
        let value = match self.random.below(30) {
            0 => format!("[{}, {}, {}]", self.value(), self.value(), self.value()),
            1 => format!("{{{} => {}}}", self.value(), self.value()),
            2 => format!("({}..{})", self.value(), self.value()),
            3 => self.variable().to_owned(),
            4 => self.class().to_owned(),
            5 => format!("({})", self.call()),
            6 => format!("proc {}", self.block()),
            7 => format!("\"#{{{}}}\"", self.random.line_of(VALUES).replace('"', "'")),
            8 => {
                let class = self.class();
                self.instance(class)
            }
            9 => format!("({}).dup", self.value()),
            10 => format!("({}).freeze", self.value()),
            11 => {
                let (_, _, name) = self.method();
                format!(":\"{name}\"")
            }
            12 => format!("lambda {}", self.block()),
            _ => self.random.line_of(VALUES).to_owned(),
        };
        self.depth -= 1;
        value
    }

    fn block(&mut self) -> String {
        let parameters = self.random.of(&[
            "",
            "|a|",
            "|a, b|",
            "|*a|",
            "|a, (b, c), *d|",
            "|a = evil, *b, k: 1, **o, &f|",
            "|a, **k|",
        ]);
        let body = self.body();
        format!("{{ {parameters} {body} }}")
    }

    fn body(&mut self) -> String {
        let first = self.random.line_of(EVIL);
        match self.random.below(6) {
            0 => format!("{first}; {}", self.random.line_of(EVIL)),
            1 if self.depth < 2 => {
                self.depth += 1;
                let call = self.call();
                self.depth -= 1;
                call
            }
            2 => format!("begin; {first}; ensure; {}; end", self.random.line_of(EVIL)),
            3 => format!(
                "if ($count += 1) % 3 == 0 then {first} else {} end",
                self.random.line_of(VALUES)
            ),
            _ => first.to_owned(),
        }
    }

    /// A method that C code or other classes call, replaced.
    fn reopened(&mut self) -> String {
        let (class, _, known) = self.method();
        let name = match self.random.percent(60) {
            true => self.random.word_of(NAMES),
            false => known,
        };
        let (body, value) = (self.body(), self.value());
        match self.random.below(8) {
            0 => format!("{class}.define_method(:\"{name}\") {{ |*a, &b| {body} }}"),
            1 => format!("{class}.__send__(:undef_method, :\"{name}\")"),
            2 => format!("{class}.__send__(:remove_method, :\"{name}\")"),
            3 => format!("{class}.__send__(:alias_method, :\"{name}\", :\"{known}\")"),
            4 => format!("{class}.define_method(:\"{name}\", {value})"),
            5 => format!(
                "($r = {value}).define_singleton_method(:\"{name}\") {{ |*a| {body} }}; $r.{name} 1"
            ),
            6 => format!(
                "o = {value}; class << o; def {}(*a); {body}; end; end; v1 = o",
                self.random.of(&[
                    "to_s", "each", "call", "foo", "inspect", "hash", "eql?", "==", "to_str",
                    "to_ary"
                ])
            ),
            _ => {
                format!("{class}.singleton_class.define_method(:\"{name}\") {{ |*a, &b| {body} }}")
            }
        }
    }

    fn changed_class(&mut self) -> String {
        let (class, other, value) = (self.class(), self.class(), self.value());
        let known = self.method().2;
        match self.random.below(14) {
            0 => format!(
                "Object.__send__(:remove_const, :{})",
                class.split("::").next().unwrap_or(class)
            ),
            1 => format!(
                "Object.const_set(:{}, {value})",
                class.split("::").next().unwrap_or(class)
            ),
            2 => format!("{class}.include({value})"),
            3 => format!(
                "{class}.prepend(Module.new {{ def {}(*a) {}; end }})",
                self.random
                    .of(&["to_s", "each", "call", "initialize", "hash"]),
                self.body()
            ),
            4 => format!("({value}).extend({other})"),
            5 => format!("{class}.class_eval {{ {} }}", self.body()),
            6 => format!("({value}).instance_eval {{ |x| {} }}", self.body()),
            7 => format!(
                "{class}.instance_method(:\"{known}\").bind({value}).call({})",
                self.value()
            ),
            8 => format!(
                "$x = Class.new({class}) {{ def initialize(*a); {}; end }}; v1 = $x.new({value})",
                self.body()
            ),
            9 => format!("{class}.class_variable_set(:@@a, {value}); {class}.freeze"),
            10 => format!("$x = {class}.dup; v1 = $x.new({value})"),
            11 => format!("$x = {class}.clone; v1 = $x.allocate"),
            12 => format!("{class}.initialize_copy({other})"),
            _ => format!("{class}.__send__(:initialize, {value})"),
        }
    }

    /// A method of one class with an object of another.
    fn bound(&mut self) -> String {
        let (class, of_class, name) = self.method();
        let (owner, receiver) = match of_class {
            true => (
                format!("{class}.method(:\"{name}\").unbind"),
                self.class().to_owned(),
            ),
            false => (
                format!("{class}.instance_method(:\"{name}\")"),
                self.instance(class),
            ),
        };
        let arguments = self.value();
        let block = self.block();
        match self.random.below(5) {
            0 => format!("$x = {owner}.bind($r = ({receiver})).call({arguments}) {block}"),
            1 => format!("$x = {owner}.bind($r = ({receiver})).to_proc.call({arguments}) {block}"),
            2 => format!("$x = {owner}.bind_call($r = ({receiver}), {arguments}) {block}"),
            3 => format!("$x = [{arguments}].map(&{owner}.bind({receiver}))"),
            _ => {
                format!("Liar.define_method(:foo, {owner}); $x = Liar.new.foo({arguments}) {block}")
            }
        }
    }

    fn fiber(&mut self) -> String {
        let (body, value, other) = (self.body(), self.value(), self.body());
        match self.random.below(8) {
            0 => format!(
                "f = Fiber.new {{ |a| {body}; Fiber.yield {value}; {other} }}; $fibers << f; $x = f.resume({value}); f.resume"
            ),
            1 => "f = Fiber.new { f.resume }; f.resume".to_owned(),
            2 => format!(
                "f = Fiber.new {{ begin; Fiber.yield; ensure; {body}; end }}; f.resume; f = nil; GC.start"
            ),
            3 => format!(
                "e = Enumerator.new {{ |y| {body}; y << {value}; {other} }}; $x = e.next; e.peek; e.next; e.rewind; e.next"
            ),
            4 => format!(
                "f = Fiber.new {{ |a| $r = a; {body} }}; 3.times {{ $x = f.resume({value}) }}"
            ),
            5 => format!("f = Fiber.new(&({value})); f.resume({other})"),
            6 => format!("$fibers.each {{ |f| $x = f.resume({value}) }}"),
            _ => format!(
                "Fiber.new {{ Fiber.new {{ Fiber.new {{ Fiber.yield; {body} }}.resume; {other} }}.resume; Fiber.yield }}.resume"
            ),
        }
    }

    fn syntax(&mut self) -> String {
        let (value, other, body) = (self.value(), self.value(), self.body());
        let variable = self.variable();
        match self.random.below(22) {
            0 => format!("{variable}, (a, *b), *v1 = {value}"),
            1 => format!("for a, b in ({value}); {body}; break if ($count += 1) % 50 == 0; end"),
            2 => format!(
                "case {value}; when {other} then {body}; when *({value}) then 2; else 3; end"
            ),
            3 => format!(
                "def foo(a, b = {value}, *c, d, e:, f: {other}, **g, &h) {body}; end; $x = foo(*({value}), e: 1, **({other}))"
            ),
            4 => format!(
                "def foo(*) [*({value})].each {{ |x| return x if {body} }}; ensure; {}; end; $x = foo",
                self.body()
            ),
            5 => format!("$x = eval({value}.to_s)"),
            6 => format!("({value})[{other}] ||= {value}; ({value})[{other}] += 1"),
            7 => format!("$x = ({value})&.foo(*({other}), &({value}))"),
            8 => format!("$x = catch({value}) {{ |t| [1].each {{ throw t, {other} }}; {body} }}"),
            9 => format!(
                "$x = \"#{{({value})}}\" \"#{{{body}}}\"",
                value = self.random.line_of(VALUES).replace('"', "'"),
                body = "evil"
            ),
            10 => format!("def foo(&b) b; end; $x = foo {{ return 5 }}; $x.call({value})"),
            11 => format!(
                "begin; raise ({value}), ({other}); rescue *({value}) => e; {body}; else; 1; ensure; {}; end",
                self.body()
            ),
            12 => format!("begin; raise ({value}); rescue {other} => e; {body}; end"),
            13 => format!(
                "i = 0; while (i += 1) < 5; begin; {body}; next; ensure; {}; end; end",
                self.body()
            ),
            14 => format!("b = binding; b.local_variable_set(:q, {value}); $x = b.eval(\"q; a\")"),
            15 => format!("$x = [*({value}), *({other}), **({value})]"),
            16 => format!("{variable} = ({value} if {other}) or ({value} and not {other})"),
            17 => format!(
                "foo = Class.new(Liar) {{ def foo(*a, k: {value}, **o) super; end; def bar(a = 1, *b) super(*b, &nil); end }}; $x = foo.new.foo({other}, k: 2); foo.new.bar"
            ),
            18 => format!(
                "$x = proc {{ |a, (b, *c), d = {value}, *e, f| [a, b, c, d, e, f] }}.call(*({other}))"
            ),
            19 => format!("alias $zz $x; undef foo; $x = defined?({variable})"),
            20 => format!("$x = ->(a = {value}, *b, **c) {{ {body} }}.curry.({other})"),
            _ => format!(
                "({value}).each_with_index.with_object([]).map {{ |a, b| {body} }}.sort_by {{ {} }}",
                self.body()
            ),
        }
    }
}
