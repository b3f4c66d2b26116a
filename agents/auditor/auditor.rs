//! Reads the newest commits of a git repository, and reports findings for a reviewer.
//!
//! One call reads the log, and one batch reads its commits. Input: {"repository": path,
//! "commits": number}. Output: the changes of each commit, findings, and the commits
//! that could not be read, with the reason.

use caxton::{json, Error, Level, Value};

caxton::agent!(run);

/// Number of added lines above which a commit is a finding.
const MANY_LINES: usize = 500;

/// Texts that an added line must not contain, in lower case, and their names.
const SECRETS: [(&str, &str); 5] = [
    ("-----begin rsa private key", "a private key"),
    ("-----begin openssh private key", "a private key"),
    ("-----begin private key", "a private key"),
    ("aws_secret_access_key", "a key of AWS"),
    ("password =", "a password"),
];

fn run() -> Result<(), Error> {
    let input = caxton::input();
    let repository = &input["repository"];
    let most = input["commits"].as_i64().unwrap_or(10);

    let log = caxton::mcp_call(
        "mcp__git__git_log",
        json!({"repo_path": repository, "max_count": most}),
    )?;
    let shas = shas(&log.message);
    let shows = shas.iter().map(|sha| {
        (
            "mcp__git__git_show",
            json!({"repo_path": repository, "revision": *sha}),
        )
    });
    let answers = caxton::mcp_call_many(shows)?;

    let mut report = Report::default();
    for (sha, answer) in shas.iter().zip(answers) {
        match answer {
            Ok(reply) => report.read(sha, &reply.message),
            Err(error) => report.unread.push(json!({
                "commit": short(sha),
                "why": error.to_string(),
            })),
        }
    }
    report.publish(repository);
    Ok(())
}

/// The commits in a log. A message is arbitrary text, so only a complete hash counts.
fn shas(log: &str) -> Vec<&str> {
    log.lines()
        .filter_map(|line| line.strip_prefix("Commit: "))
        .filter(|sha| sha.len() == 40 && sha.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .collect()
}

fn short(sha: &str) -> &str {
    &sha[..10]
}

#[derive(Default)]
struct Report {
    commits: Vec<Value>,
    findings: Vec<Value>,
    unread: Vec<Value>,
    added: usize,
    removed: usize,
}

impl Report {
    fn read(&mut self, sha: &str, text: &str) {
        let (head, patch) = text.split_once("\n--- ").unwrap_or((text, ""));
        let (mut files, mut added, mut removed) = (Vec::new(), 0, 0);
        for line in patch.lines() {
            if let Some(file) = line.strip_prefix("+++ ") {
                files.push(file.strip_prefix("b/").unwrap_or(file));
            } else if let Some(line) = line.strip_prefix('+') {
                added += 1;
                self.look(sha, files.last().copied().unwrap_or_default(), line);
            } else if line.starts_with('-') && !line.starts_with("--- ") {
                removed += 1;
            }
        }
        if added > MANY_LINES {
            self.find(sha, format!("adds {} lines", added));
        }
        self.added += added;
        self.removed += removed;
        self.commits.push(json!({
            "commit": short(sha),
            "author": field(head, "Author: "),
            "subject": head.lines().find_map(|line| line.strip_prefix("    ")).unwrap_or(""),
            "files": files,
            "added": added,
            "removed": removed,
        }));
    }

    fn look(&mut self, sha: &str, file: &str, line: &str) {
        let line = line.to_lowercase();
        if let Some((_, name)) = SECRETS.iter().find(|(mark, _)| line.contains(mark)) {
            self.find(sha, format!("adds what looks like {} to {}", name, file));
        }
    }

    fn find(&mut self, sha: &str, what: String) {
        caxton::log(Level::Warning, &format!("{}: {}", short(sha), what));
        self.findings
            .push(json!({"commit": short(sha), "what": what}));
    }

    fn publish(self, repository: &Value) {
        caxton::output(json!({
            "repository": repository,
            "commits": self.commits,
            "findings": self.findings,
            "unread": self.unread,
            "added": self.added,
            "removed": self.removed,
        }));
    }
}

fn field<'a>(head: &'a str, name: &str) -> &'a str {
    head.lines()
        .find_map(|line| line.strip_prefix(name))
        .unwrap_or("")
}
