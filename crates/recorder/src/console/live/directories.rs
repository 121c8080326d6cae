//! Tables that say which sites there are: how they stand, and what was asked of them.

use control::Directory;
use report::units::Unit;
use report::{Cell, Document, Tone};

use super::LiveTelling;

/// Directories, and the questions that took long.
pub(super) fn directories(document: &mut Document, told: &LiveTelling<'_>) {
    let known = &told.live.now.status.directories;
    let mut table = told.telling.table(known);
    table.name("directory", "ディレクトリ", |it| &it.directory);
    table.words("source", "ソース", |it| state(it, told));
    table.figure(
        "answered, ago",
        "最後の応答からの時間",
        Unit::Seconds,
        |it| it.answered_s,
    );
    // Of looks beyond what workers know by themselves.
    table.figure(
        "found at once, of what workers did not know",
        "ワーカーの知らないホストの即時応答の割合",
        Unit::Share,
        |it| it.hit_share(),
    );
    table.count("hosts known", "既知のホスト", |it| it.hosts as u64);
    table.figure("memory", "メモリ", Unit::Bytes, |it| {
        Some(it.bytes as f64)
    });
    table.news("waiting", "待機中", Tone::Warn, |it| it.waiting as u64);
    table.count("asked", "問い合わせ", |it| it.asked);
    table.news("wrong rows", "不正な行", Tone::Bad, |it| it.wrong);
    table.news("refused", "拒否", Tone::Bad, |it| it.gave_up + it.busy);
    table.count("in the snapshot", "スナップショットの行", |it| {
        it.snapshot_rows
    });
    told.end(
        table,
        document,
        "directories",
        "Directories",
        "ディレクトリ",
    );
    errors(document, told);
    slowest(document, told);
}

fn state(it: &Directory, told: &LiveTelling<'_>) -> Cell {
    match (it.linked, it.answers) {
        (false, _) => Cell::toned(Tone::Bad, told.say("no process", "プロセスなし")),
        (true, Some(true)) => Cell::toned(Tone::Good, told.say("answers", "応答あり")),
        (true, Some(false)) => Cell::toned(Tone::Bad, told.say("does not answer", "応答なし")),
        (true, None) => Cell::from(told.say("not asked yet", "未使用")),
    }
}

fn errors(document: &mut Document, told: &LiveTelling<'_>) {
    let known = told.live.now.status.directories.iter();
    let mut table = told.telling.table(known.filter(|it| it.error.is_some()));
    table.name("directory", "ディレクトリ", |it| &it.directory);
    table.name("last error", "最後のエラー", |it| {
        it.error.as_deref().unwrap_or_default()
    });
    table.figure("ago", "経過時間", Unit::Seconds, |it| it.error_s);
    told.end(table, document, "directory-errors", "Errors", "エラー");
}

fn slowest(document: &mut Document, told: &LiveTelling<'_>) {
    let known = told.live.now.status.directories.iter();
    let slow = known.flat_map(|it| it.slowest.iter().map(|slow| (&it.directory, slow)));
    let mut table = told.telling.table(slow);
    table.name("directory", "ディレクトリ", |it| it.0);
    table.name("host", "ホスト", |it| &it.1.host);
    table.leads(|it| told.site(&it.1.host));
    table.figure("time", "時間", Unit::Micros, |it| Some(it.1.us as f64));
    let english = "Slowest questions of the last minutes";
    told.end(
        table,
        document,
        "slowest-questions",
        english,
        "直近で遅かった問い合わせ",
    );
}
