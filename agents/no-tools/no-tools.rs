//! Draws lots. It needs no tool: its random numbers come from the run.
//!
//! The seed is in the log before the draw, so every repeated draw is on record, and a
//! replay draws the same. Input: {"names": [...], "winners": number}.

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

/// A uniformly distributed number below `end`. Numbers beyond the largest multiple of
/// `end` are drawn again, because they would favour small results.
fn below(end: u64) -> u64 {
    let fair = u64::MAX - u64::MAX % end;
    loop {
        let number = caxton::random();
        if number < fair {
            return number % end;
        }
    }
}
