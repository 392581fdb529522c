//! The notation of DiskSim's parameter files: `kind name { key = value, ... }`.
//!
//! Keys have spaces in them, `#` begins a comment, commas between items may be left out at the end
//! of a line.

use super::ExtractedError;

/// No time of a disk is longer than ten seconds.
const MS_MAX: f64 = 10_000.0;

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A number or a word, as it stands there.
    Word(String),
    /// Several values.
    List(Vec<Value>),
    /// Named values.
    Block(Block),
}

/// Named values.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Block {
    /// What stands before the brace.
    pub head: String,
    /// In the order of the file.
    pub items: Vec<(String, Value)>,
}

impl Block {
    fn get(&self, name: &'static str) -> Result<&Value, ExtractedError> {
        let found = self.items.iter().find(|item| item.0 == name);
        found.map(|item| &item.1).ok_or(ExtractedError::Missing(name))
    }

    /// A word.
    ///
    /// # Errors
    /// When it is missing, or something else.
    pub fn word(&self, name: &'static str) -> Result<&str, ExtractedError> {
        match self.get(name)? {
            Value::Word(word) => Ok(word),
            other => Err(ExtractedError::Value { name, value: format!("{other:?}") }),
        }
    }

    /// A number.
    ///
    /// # Errors
    /// When it is missing, or none.
    pub fn number(&self, name: &'static str) -> Result<f64, ExtractedError> {
        let word = self.word(name)?;
        let number: Option<f64> = word.parse().ok();
        number
            .filter(|number| number.is_finite())
            .ok_or_else(|| ExtractedError::Value { name, value: word.to_owned() })
    }

    /// A whole number that is not negative and fits.
    ///
    /// # Errors
    /// When it is missing, or none.
    pub fn count<T: TryFrom<u64>>(&self, name: &'static str) -> Result<T, ExtractedError> {
        let number = self.number(name)?;
        let wrong = || ExtractedError::Value { name, value: number.to_string() };
        if number < 0.0 || number.fract() != 0.0 {
            return Err(wrong());
        }
        T::try_from(number as u64).map_err(|_| wrong())
    }

    /// A switch: zero is off.
    ///
    /// # Errors
    /// When it is missing, or no number.
    pub fn flag(&self, name: &'static str) -> Result<bool, ExtractedError> {
        Ok(self.number(name)? != 0.0)
    }

    /// Milliseconds, as nanoseconds.
    ///
    /// # Errors
    /// When it is missing, or no time that a disk takes.
    pub fn ms(&self, name: &'static str) -> Result<u64, ExtractedError> {
        let number = self.number(name)?;
        if !(0.0..=MS_MAX).contains(&number) {
            return Err(ExtractedError::Value { name, value: number.to_string() });
        }
        Ok((number * 1e6).round() as u64)
    }

    /// A block.
    ///
    /// # Errors
    /// When it is missing, or something else.
    pub fn block(&self, name: &'static str) -> Result<&Block, ExtractedError> {
        match self.get(name)? {
            Value::Block(block) => Ok(block),
            other => Err(ExtractedError::Value { name, value: format!("{other:?}") }),
        }
    }

    /// A list.
    ///
    /// # Errors
    /// When it is missing, or something else.
    pub fn list(&self, name: &'static str) -> Result<&[Value], ExtractedError> {
        match self.get(name)? {
            Value::List(list) => Ok(list),
            other => Err(ExtractedError::Value { name, value: format!("{other:?}") }),
        }
    }

    /// A list of numbers.
    ///
    /// # Errors
    /// When it is missing, or has something else in it.
    pub fn numbers(&self, name: &'static str) -> Result<Vec<f64>, ExtractedError> {
        let number = |value: &Value| match value {
            Value::Word(word) => word.parse().ok().filter(|number: &f64| number.is_finite()),
            _ => None,
        };
        let wrong = |value: &Value| ExtractedError::Value { name, value: format!("{value:?}") };
        let list = self.list(name)?.iter();
        list.map(|value| number(value).ok_or_else(|| wrong(value))).collect()
    }
}

/// How deep blocks may lie in each other; files have three.
const DEPTH_MAX: usize = 16;

/// Reads the first block of a file.
///
/// # Errors
/// When the notation is broken.
pub fn parse(text: &str) -> Result<Block, ExtractedError> {
    let mut lines = String::with_capacity(text.len());
    for line in text.lines() {
        lines.push_str(line.split('#').next().unwrap_or_default());
        lines.push('\n');
    }
    let mut reader = Reader { text: &lines, at: 0 };
    let head = reader.until("{}=[]");
    reader.expect('{', "a block begins with a brace")?;
    reader.block(head, DEPTH_MAX)
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn fail<T>(&self, what: &'static str) -> Result<T, ExtractedError> {
        let line = self.text[..self.at].matches('\n').count() + 1;
        Err(ExtractedError::Syntax { line, what })
    }

    fn expect(&mut self, wanted: char, what: &'static str) -> Result<(), ExtractedError> {
        if self.peek() != Some(wanted) {
            return self.fail(what);
        }
        self.at += wanted.len_utf8();
        Ok(())
    }

    fn skip(&mut self, also: char) {
        while let Some(next) = self.peek()
            && (next.is_whitespace() || next == also)
        {
            self.at += next.len_utf8();
        }
    }

    /// What stands before one of `ends`, without white space around it.
    fn until(&mut self, ends: &str) -> String {
        let rest = &self.text[self.at..];
        let end = rest.find(|next| ends.contains(next)).unwrap_or(rest.len());
        self.at += end;
        rest[..end].split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn block(&mut self, head: String, depth: usize) -> Result<Block, ExtractedError> {
        let mut items = Vec::new();
        loop {
            self.skip(',');
            if self.peek() == Some('}') {
                self.at += 1;
                return Ok(Block { head, items });
            }
            let name = self.until("=,{}[]");
            self.expect('=', "a value follows its name and an equals sign")?;
            items.push((name, self.value(depth)?));
        }
    }

    fn value(&mut self, depth: usize) -> Result<Value, ExtractedError> {
        if depth == 0 {
            return self.fail("blocks lie too deep in each other");
        }
        self.skip(' ');
        if self.peek() == Some('[') {
            self.at += 1;
            let mut list = Vec::new();
            loop {
                self.skip(',');
                if self.peek() == Some(']') {
                    self.at += 1;
                    return Ok(Value::List(list));
                }
                list.push(self.value(depth - 1)?);
            }
        }
        let word = self.until(",{}[]\n");
        if self.peek() == Some('{') {
            self.at += 1;
            return Ok(Value::Block(self.block(word, depth - 1)?));
        }
        if word.is_empty() {
            return self.fail("a value is missing");
        }
        Ok(Value::Word(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_lists_and_words_are_read() {
        let text = "disk A_B {\n Model = source a.model, # said so\n Size (in blks) = 5,\n\
                    List =\n  [ 1, 2,\n 3 ],\n In = kind { x = 0.5, # y = 2\n }\n Last = 1\n} # end";
        let block = parse(text).expect("it is right");
        assert_eq!(block.head, "disk A_B");
        assert_eq!(block.word("Model").expect("a word"), "source a.model");
        assert_eq!(block.count::<u32>("Size (in blks)").expect("a count"), 5);
        assert_eq!(block.numbers("List").expect("numbers"), [1.0, 2.0, 3.0]);
        assert_eq!(block.block("In").expect("a block").ms("x").expect("a time"), 500_000);
        assert!(block.flag("Last").expect("a switch"));
        assert_eq!(block.items.len(), 5);
    }

    #[test]
    fn what_is_broken_is_refused_with_its_line() {
        for (text, line) in [
            ("disk", 2),
            ("disk {\n a = 1,\n b = }", 3),
            ("disk {\n a = [ 1, 2\n", 3),
            ("disk {\n a\n}", 3),
            ("disk { a = ", 2),
        ] {
            match parse(text) {
                Err(ExtractedError::Syntax { line: found, .. }) => {
                    assert_eq!(found, line, "{text}")
                }
                other => panic!("{text}: {other:?}"),
            }
        }
        assert!(parse(&format!("disk {{ a = {}", "[".repeat(100))).is_err());
    }

    #[test]
    fn what_no_disk_has_is_refused() {
        let block = parse("d { a = -1, b = 1.5, c = x, d = [ 1, y ], e = inf }").expect("fine");
        assert!(block.count::<u32>("a").is_err());
        assert!(block.count::<u32>("b").is_err());
        assert!(block.number("c").is_err());
        assert!(block.numbers("d").is_err());
        assert!(block.number("e").is_err());
        assert!(matches!(block.number("f"), Err(ExtractedError::Missing("f"))));
    }
}
