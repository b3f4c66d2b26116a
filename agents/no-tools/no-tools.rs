//! Draws lots. It needs no tool: what it uses is in every run's log.
//!
//! The seed is in the log before the draw, so nobody can draw again until it suits
//! them, and a replay draws the same. Input: {"names": [...], "winners": number}.

use caxton::{json, Level};

caxton::agent!(run);

fn run() -> Result<(), String> {
    let input = caxton::input();
    let mut names: Vec<&str> = input["names"]
        .items()
        .iter()
        .filter_map(|name| name.as_str())
        .collect();
    let winners = input["winners"].as_u64().unwrap_or(1) as usize;
    if winners > names.len() {
        return Err(format!("{} winners of {} names", winners, names.len()));
    }
    for place in 0..winners {
        let drawn = place + below((names.len() - place) as u64) as usize;
        names.swap(place, drawn);
        caxton::log(Level::Info, &format!("{}. {}", place + 1, names[place]));
    }
    caxton::output(json!({
        "winners": names[..winners].to_vec(),
        "of": names.len(),
        "drawn_at": caxton::now(),
    }));
    Ok(())
}

/// A number below `end`, each as likely as any other: the rest of the division would
/// favour small ones, so what does not divide evenly is drawn again.
fn below(end: u64) -> u64 {
    let fair = u64::MAX - u64::MAX % end;
    loop {
        let number = caxton::random();
        if number < fair {
            return number % end;
        }
    }
}
