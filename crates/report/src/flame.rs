//! Flame graphs: executed functions by stack, as one SVG without scripts.
//!
//! A bar is a function; the functions that it called lie above it, and its width is its cost including theirs. In a graph of the difference, widths
//! are B's; red costs more in B than in A, blue costs less, and a deeper colour is a larger difference. A function only in A has no width; the table
//! of causes lists it instead.
//!
//! Invariant: the same stacks give the same bytes; a bar lies within its caller's bar.

use std::fmt::Write as _;

use super::html::escape;
use super::table::clip;
use super::why::{ns, signed};
use bigiron_judge::stacks::{Frame, Stacks};

/// What a graph shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlameView {
    A,
    B,
    /// B's widths, coloured by the difference from A.
    Difference,
}

/// Width of a graph and height of a bar in CSS pixels.
const WIDTH: f64 = 1200.0;
const BAR: f64 = 17.0;

/// Height of the lines of text above the bars.
const HEAD: f64 = 44.0;

/// Narrower bars are not drawn, nor the bars above them.
const NARROWEST: f64 = 0.6;

/// Width of a character in the bars' font, 11 pixels and monospaced.
const CHARACTER: f64 = 6.7;

/// Deeper stacks are cut off: nobody can read them, and a recursion may be endless.
const DEEPEST: usize = 96;

impl FlameView {
    fn width(self, frame: &Frame) -> f64 {
        match self {
            FlameView::A => frame.a,
            FlameView::B | FlameView::Difference => frame.b,
        }
    }
}

/// The graph as a document of its own.
pub fn document(stacks: &Stacks, arms: (&str, &str), shown: FlameView) -> String {
    svg(stacks, arms, shown).replacen("<svg ", "<svg xmlns=\"http://www.w3.org/2000/svg\" ", 1)
}

/// The graph as part of a page.
pub fn svg(stacks: &Stacks, arms: (&str, &str), shown: FlameView) -> String {
    let whole = shown.width(&stacks.root);
    let mut bars =
        Bars { shown, scale: if whole > 0.0 { WIDTH / whole } else { 0.0 }, whole, out: String::new(), levels: 0 };
    // The greatest difference of a single function's own cost has the deepest colour.
    let deepest = if shown == FlameView::Difference { greatest(&stacks.root) } else { 0.0 };
    bars.row(&stacks.root, 0.0, 0, deepest);
    let height = HEAD + BAR * bars.levels as f64;
    let what = match shown {
        FlameView::A => arms.0.to_owned(),
        FlameView::B => arms.1.to_owned(),
        FlameView::Difference => {
            format!("widths are B's, red costs more than in A, blue less; {} against {}", arms.1, arms.0)
        }
    };
    let (metric, workload) = (&stacks.metric, &stacks.workload);
    let mut out = format!(
        "<svg class=\"flame\" viewBox=\"0 0 {WIDTH:.0} {height:.0}\" width=\"{WIDTH:.0}\" height=\"{height:.0}\" \
         role=\"img\" font-family=\"ui-monospace, 'DejaVu Sans Mono', monospace\" font-size=\"11\">\n\
         <title>{}</title>\n<rect class=\"paper\" width=\"100%\" height=\"100%\" fill=\"#fcfcfa\"/>\n\
         <text class=\"title\" x=\"4\" y=\"16\" font-size=\"13\" fill=\"#16191d\">{}</text>\n<text class=\"sub\" x=\"4\" y=\"33\" fill=\"#59636e\">{}</text>\n",
        escape(&format!("{workload} {metric}: {what}")),
        escape(&format!("{workload} {metric}")),
        escape(&clip(&format!("{} ns of CPU time per operation; {what}", ns(whole)), (WIDTH / CHARACTER) as usize - 2))
    );
    // Bars are laid out from the top and flipped here, so that callers lie below.
    let _ = writeln!(
        out,
        "<g class=\"bars\" transform=\"translate(0 {height:.0})\" stroke=\"#fcfcfa\" stroke-width=\".6\">"
    );
    out.push_str(&bars.out);
    out.push_str("</g>\n</svg>\n");
    out
}

/// The bars drawn by now.
struct Bars {
    shown: FlameView,
    /// Pixels per nanosecond.
    scale: f64,
    whole: f64,
    out: String,
    levels: usize,
}

impl Bars {
    /// The functions that `frame` called, above it from pixel `x` on.
    fn row(&mut self, frame: &Frame, mut x: f64, level: usize, deepest: f64) {
        if level == DEEPEST {
            return;
        }
        for (name, called) in &frame.called {
            let width = self.scale * self.shown.width(called);
            if width >= NARROWEST {
                self.bar(name, called, (x, width), level, deepest);
                self.row(called, x, level + 1, deepest);
            }
            x += width;
        }
    }

    fn bar(&mut self, name: &str, frame: &Frame, (x, width): (f64, f64), level: usize, deepest: f64) {
        self.levels = self.levels.max(level + 1);
        let y = -BAR * (level + 1) as f64;
        let cost = self.shown.width(frame);
        let mut title = format!("{name}: {} ns, {:.1} %", ns(cost), 100.0 * cost / self.whole);
        let fill = match self.shown {
            FlameView::Difference => {
                let _ = write!(title, "; {} against {} in A", signed(frame.b - frame.a), ns(frame.a));
                tint(own(frame), deepest)
            }
            _ => warm(name),
        };
        let _ = write!(
            self.out,
            "<g><title>{}</title><rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{BAR}\" fill=\"{fill}\"/>",
            escape(&title)
        );
        let room = ((width - 6.0) / CHARACTER).max(0.0) as usize;
        if room >= 3 {
            let short: String = if name.chars().count() <= room {
                name.to_owned()
            } else {
                name.chars().take(room - 1).chain(['…']).collect()
            };
            let _ = write!(
                self.out,
                "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"#16191d\" stroke=\"none\">{}</text>",
                x + 3.0,
                y + 12.5,
                escape(&short)
            );
        }
        self.out.push_str("</g>\n");
    }
}

/// The nanoseconds by which a function itself costs more in B, without its callees.
fn own(frame: &Frame) -> f64 {
    frame.called.values().fold(frame.b - frame.a, |sum, called| sum - (called.b - called.a))
}

/// The greatest difference of any function's own cost.
fn greatest(frame: &Frame) -> f64 {
    frame.called.values().map(|called| own(called).abs().max(greatest(called))).fold(0.0, f64::max)
}

/// White for no difference, red for the greatest increase in B, blue for the greatest decrease.
fn tint(difference: f64, greatest: f64) -> String {
    let share = if greatest > 0.0 { (difference / greatest).clamp(-1.0, 1.0) } else { 0.0 };
    // A square root makes small differences visible without giving them the depth of large ones.
    let fade = |full: f64| (238.0 + (full - 238.0) * share.abs().sqrt()).round() as u8;
    let (red, green, blue) = if share > 0.0 { (235.0, 90.0, 70.0) } else { (80.0, 135.0, 235.0) };
    format!("#{:02x}{:02x}{:02x}", fade(red), fade(green), fade(blue))
}

/// A flame colour chosen by the name alone: FNV-1a.
fn warm(name: &str) -> String {
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let part = |shift: u32, from: u32, to: u32| from + (hash >> shift & 0xff) * (to - from) / 255;
    format!("#{:02x}{:02x}{:02x}", part(0, 236, 252), part(8, 140, 205), part(16, 70, 115))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(a: f64, b: f64, called: &[(&str, Frame)]) -> Frame {
        Frame { a, b, called: called.iter().map(|(name, frame)| ((*name).to_owned(), frame.clone())).collect() }
    }

    fn stacks() -> Stacks {
        let inner = frame(20.0, 60.0, &[]);
        let f =
            frame(50.0, 80.0, &[("g<T>", inner), ("sliver", frame(0.0, 0.01, &[("below", frame(0.0, 0.01, &[]))]))]);
        let gone = frame(40.0, 0.0, &[]);
        let sh = frame(100.0, 100.0, &[("f", f), ("gone", gone), ("h", frame(10.0, 20.0, &[]))]);
        Stacks {
            comparison: 0,
            workload: "w".to_owned(),
            metric: "m".to_owned(),
            root: frame(100.0, 100.0, &[("sh", sh)]),
        }
    }

    /// Position, width and colour of the bar whose title begins with `name`.
    fn bar(svg: &str, name: &str) -> Option<(f64, f64, f64, String)> {
        let line = svg.lines().find(|line| line.starts_with(&format!("<g><title>{name}:")))?;
        let get = |key: &str| {
            let rest = line.split_once("<rect ")?.1.split_once(&format!("{key}=\""))?.1;
            Some(rest.split_once('"')?.0.to_owned())
        };
        let number = |key| get(key)?.parse::<f64>().ok();
        Some((number("x")?, number(" y")?, number("width")?, get("fill")?))
    }

    #[test]
    fn a_bar_lies_on_its_caller_and_is_as_wide_as_its_cost() {
        let svg = svg(&stacks(), ("one", "two"), FlameView::B);
        let (x, y, width, _) = bar(&svg, "sh").unwrap();
        assert_eq!((x, y, width), (0.0, -BAR, WIDTH));
        let (x, y, width, _) = bar(&svg, "f").unwrap();
        assert_eq!((x, y, width), (0.0, -2.0 * BAR, 0.8 * WIDTH));
        let (x, _, width, _) = bar(&svg, "h").unwrap();
        assert_eq!((x, width), (0.8 * WIDTH, 0.2 * WIDTH));
        assert!(bar(&svg, "g&lt;T&gt;").is_some(), "{svg}");
        // Too narrow a bar is not drawn, and a function that is gone has no width in B.
        assert!(["sliver", "below", "gone"].iter().all(|name| bar(&svg, name).is_none()));
        assert!(bar(&super::svg(&stacks(), ("one", "two"), FlameView::A), "gone").is_some());
    }

    #[test]
    fn the_difference_is_red_where_b_costs_more_itself_and_blue_where_less() {
        let svg = svg(&stacks(), ("one", "two"), FlameView::Difference);
        // The function g itself costs 40 more, the greatest difference; f itself costs 10 less.
        assert_eq!(bar(&svg, "g&lt;T&gt;").unwrap().3, tint(40.0, 40.0));
        assert_eq!(bar(&svg, "f").unwrap().3, tint(-10.01, 40.0));
        assert_eq!((tint(0.0, 40.0), tint(0.0, 0.0)), ("#eeeeee".to_owned(), "#eeeeee".to_owned()));
        let red = u8::from_str_radix(&tint(40.0, 40.0)[1..3], 16).unwrap();
        let blue = u8::from_str_radix(&tint(-40.0, 40.0)[5..7], 16).unwrap();
        assert!(red > 220 && blue > 220);
        assert!(svg.contains("+40.0 against 20.0 in A"), "{svg}");
    }

    #[test]
    fn the_same_stacks_are_the_same_bytes_and_every_tag_is_closed() {
        for shown in [FlameView::A, FlameView::B, FlameView::Difference] {
            let text = svg(&stacks(), ("<one>", "two"), shown);
            assert_eq!(text, svg(&stacks(), ("<one>", "two"), shown));
            for tag in ["svg", "g", "title", "text"] {
                let opened = text.matches(&format!("<{tag}>")).count() + text.matches(&format!("<{tag} ")).count();
                assert_eq!(opened, text.matches(&format!("</{tag}>")).count(), "{tag}");
            }
            assert!(!text.contains("<one>") && !text.contains("script"));
        }
    }

    #[test]
    fn nothing_at_all_is_an_empty_graph() {
        let none = Stacks { root: Frame::default(), ..stacks() };
        assert!(!svg(&none, ("one", "two"), FlameView::A).contains("NaN"));
    }
}
