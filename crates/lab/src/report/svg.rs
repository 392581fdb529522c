//! A small writer of SVG: shapes with classes, text that is escaped.
//!
//! Colours are not in here; classes are, and the page's style sheet gives them
//! colours for light, dark and paper. Numbers are written with one decimal, so
//! the same figures give the same bytes on every machine.

use crate::units::trimmed;

/// Escapes text for element content and for attributes in double quotes. Characters that XML
/// does not allow at all become U+FFFD.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\t' | '\n' => escaped.push(character),
            '\u{0}'..='\u{1f}' | '\u{7f}' | '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            _ => escaped.push(character),
        }
    }
    escaped
}

/// Where a text stands relative to its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// Begins there.
    Start,
    /// Is centred there.
    Middle,
    /// Ends there.
    End,
}

/// Shapes that mark points, so that lines are told apart without colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    /// ●
    Circle,
    /// ■
    Square,
    /// ▲
    Triangle,
    /// ◆
    Diamond,
    /// ▼
    TriangleDown,
    /// A bold x.
    Cross,
    /// A bold +.
    Plus,
}

impl Marker {
    /// Every marker, in the order subjects take them.
    pub const ALL: [Self; 7] = [
        Self::Circle,
        Self::Square,
        Self::Triangle,
        Self::Diamond,
        Self::TriangleDown,
        Self::Cross,
        Self::Plus,
    ];
}

/// A picture in the making. Positions are in its own units from the upper left.
#[derive(Clone, Debug)]
pub struct Svg {
    width: f64,
    height: f64,
    body: String,
}

impl Svg {
    /// An empty picture.
    pub fn new(width: f64, height: f64) -> Self {
        Self { width, height, body: String::new() }
    }

    /// A straight line.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        self.body.push_str(&format!(
            "<line class=\"{}\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>\n",
            escape(class),
            number(from.0),
            number(from.1),
            number(to.0),
            number(to.1)
        ));
    }

    /// A rectangle with a tooltip.
    pub fn bar(&mut self, corner: (f64, f64), size: (f64, f64), class: &str, tip: &str) {
        self.body.push_str(&format!(
            "<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"><title>{}</title></rect>\n",
            escape(class),
            number(corner.0),
            number(corner.1),
            number(size.0),
            number(size.1),
            escape(tip)
        ));
    }

    /// A line through points.
    pub fn polyline(&mut self, points: &[(f64, f64)], class: &str) {
        let points: Vec<String> =
            points.iter().map(|(x, y)| format!("{},{}", number(*x), number(*y))).collect();
        self.body.push_str(&format!(
            "<polyline class=\"{}\" points=\"{}\"/>\n",
            escape(class),
            points.join(" ")
        ));
    }

    /// A text.
    pub fn text(&mut self, at: (f64, f64), anchor: Anchor, class: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        self.body.push_str(&format!(
            "<text class=\"{}\" x=\"{}\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>\n",
            escape(class),
            number(at.0),
            number(at.1),
            escape(text)
        ));
    }

    /// A marker of about nine units around a point, with a tooltip where there is something to
    /// tell.
    pub fn marker(&mut self, marker: Marker, at: (f64, f64), class: &str, tip: Option<&str>) {
        // Drawn around the origin; areas are about equal, so that none looks more important.
        let shape = match marker {
            Marker::Circle => "<circle r=\"4\"",
            Marker::Square => "<rect x=\"-3.6\" y=\"-3.6\" width=\"7.2\" height=\"7.2\"",
            Marker::Triangle => "<path d=\"M0-4.8 4.6 3.4H-4.6Z\"",
            Marker::Diamond => "<path d=\"M0-5.2 5.2 0 0 5.2-5.2 0Z\"",
            Marker::TriangleDown => "<path d=\"M0 4.8-4.6-3.4H4.6Z\"",
            Marker::Cross => {
                "<path d=\"M-4-2.4-2.4-4 0-1.6 2.4-4 4-2.4 1.6 0 4 2.4 2.4 4 0 1.6-2.4 4-4 2.4-1.6 0Z\""
            }
            Marker::Plus => {
                "<path d=\"M-1.2-4.6H1.2V-1.2H4.6V1.2H1.2V4.6H-1.2V1.2H-4.6V-1.2H-1.2Z\""
            }
        };
        let tip = tip.map_or_else(String::new, |tip| format!("<title>{}</title>", escape(tip)));
        let tag = if shape.starts_with("<path") {
            "path"
        } else if shape.starts_with("<rect") {
            "rect"
        } else {
            "circle"
        };
        self.body.push_str(&format!(
            "{shape} class=\"{}\" transform=\"translate({} {})\">{tip}</{tag}>\n",
            escape(class),
            number(at.0),
            number(at.1)
        ));
    }

    /// The finished picture; `label` says what it shows to those who don't see it.
    pub fn finish(self, label: &str) -> String {
        format!(
            "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n{}</svg>\n",
            number(self.width),
            number(self.height),
            escape(label),
            self.body
        )
    }
}

/// One decimal, none if it is zero, and never a negative zero.
fn number(value: f64) -> String {
    let text = trimmed(value, 1);
    if text == "-0" { "0".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_means_something_is_escaped() {
        assert_eq!(
            escape("<a href=\"x\">&'\u{0}\u{b}é</a>"),
            "&lt;a href=&quot;x&quot;&gt;&amp;&#39;\u{fffd}\u{fffd}é&lt;/a&gt;"
        );
    }

    #[test]
    fn a_picture_is_written_as_expected() {
        let mut svg = Svg::new(100.0, 50.5);
        svg.line((0.0, -0.04), (1.25, 2.0), "axis");
        svg.bar((1.0, 2.0), (3.0, 4.0), "s1", "a < b");
        svg.polyline(&[(0.0, 0.0), (1.0, 1.04)], "s2");
        svg.text((5.0, 6.0), Anchor::End, "tick", "4 KiB");
        svg.marker(Marker::Diamond, (7.0, 8.0), "s3", Some("tip"));
        assert_eq!(
            svg.finish("what \"it\" shows"),
            "<svg viewBox=\"0 0 100 50.5\" role=\"img\" aria-label=\"what &quot;it&quot; shows\">\n\
             <line class=\"axis\" x1=\"0\" y1=\"0\" x2=\"1.2\" y2=\"2\"/>\n\
             <rect class=\"s1\" x=\"1\" y=\"2\" width=\"3\" height=\"4\"><title>a &lt; b</title></rect>\n\
             <polyline class=\"s2\" points=\"0,0 1,1\"/>\n\
             <text class=\"tick\" x=\"5\" y=\"6\" text-anchor=\"end\">4 KiB</text>\n\
             <path d=\"M0-5.2 5.2 0 0 5.2-5.2 0Z\" class=\"s3\" transform=\"translate(7 8)\"><title>tip</title></path>\n\
             </svg>\n"
        );
    }
}
