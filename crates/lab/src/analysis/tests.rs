use super::*;
#[test]
fn show() {
    let a = analyse(&crate::made_up::run());
    for l in &a.headline {
        println!("H {l}");
    }
    for l in &a.cautions {
        println!("C {l}");
    }
    for t in &a.tests {
        println!("{}", t.test);
        for s in &t.sentences {
            println!("  {s}");
        }
    }
}
