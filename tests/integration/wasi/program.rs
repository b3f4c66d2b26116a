// The same as program.go.
use std::io::{Read, Write};
use std::time::{Duration, SystemTime};
use std::{env, fs, io, process, thread};

fn names(folder: &str) -> Vec<String> {
    let mut found: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort();
    found
}

fn main() {
    let mut input = String::new();
    io::stdin().read_to_string(&mut input).unwrap();
    if input == "fail" {
        eprint!("half a line");
        process::exit(3);
    }
    let began = SystemTime::now();
    thread::sleep(Duration::from_secs(3600));
    let slept = began.elapsed().unwrap().as_secs() / 3600;
    let data = fs::read_to_string("data/deep/a.txt").unwrap();
    let written = fs::write("data/new.txt", &data).is_ok();
    let outside = fs::read("/data/../../etc/passwd").is_ok();
    fs::create_dir_all("/tmp/kept/here").unwrap();
    fs::write("/tmp/one", "1").unwrap();
    let mut more = fs::OpenOptions::new().append(true).open("/tmp/one").unwrap();
    more.write_all(b"2").unwrap();
    drop(more);
    fs::rename("/tmp/one", "/tmp/kept/two").unwrap();
    let two = fs::read_to_string("/tmp/kept/two").unwrap();
    fs::remove_dir(&"/tmp/kept/here").unwrap();
    eprint!("slept");
    eprintln!(" for {}h0m0s", slept);
    println!(
        "{{\"input\":{},\"args\":{:?},\"mode\":{:?},\"data\":{:?},\"written\":{},\
         \"outside\":{},\"two\":{:?},\"root\":{:?},\"tmp\":{:?}}}",
        input,
        env::args().collect::<Vec<_>>(),
        env::var("MODE").unwrap(),
        data,
        written,
        outside,
        two,
        names("/"),
        names("/tmp/kept"),
    );
}
