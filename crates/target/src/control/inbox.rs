//! Lines of a peer, cut from what a socket receives.

use world::{FixedFile, Pool, Ring};

/// What one receive brings at most.
const RECEIVE_BYTES: usize = 4096;

/// What a peer sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A line, without its end.
    Request(Vec<u8>),
    /// The peer is gone. Half a line before that is nobody's request.
    End,
    /// A line that is longer than any request.
    TooLong,
}

/// Bytes that were received and not used.
pub(super) struct Inbox {
    bytes: Vec<u8>,
    line_bytes_max: usize,
}

impl Inbox {
    pub(super) fn new(line_bytes_max: usize) -> Self {
        Inbox { bytes: Vec::new(), line_bytes_max }
    }

    /// The next line that is not empty.
    pub(super) async fn line(&mut self, ring: &Ring, pool: &Pool, socket: &FixedFile) -> Line {
        loop {
            if let Some(line) = self.cut() {
                return line;
            }
            let (buffer, result) = ring.receive(socket, pool.take(RECEIVE_BYTES), false).await;
            match result {
                Ok(0) | Err(_) => return Line::End,
                Ok(bytes) => self.bytes.extend_from_slice(&buffer[..bytes]),
            }
        }
    }

    /// A line of what is there, if it is whole.
    fn cut(&mut self) -> Option<Line> {
        while let Some(end) = self.bytes.iter().position(|&byte| byte == b'\n') {
            if end > self.line_bytes_max {
                return Some(Line::TooLong);
            }
            let mut line: Vec<u8> = self.bytes.drain(..=end).collect();
            line.pop();
            if !line.is_empty() {
                return Some(Line::Request(line));
            }
        }
        (self.bytes.len() > self.line_bytes_max).then_some(Line::TooLong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_at_their_ends_and_are_bounded() {
        let mut inbox = Inbox::new(4);
        let request = |text: &str| Some(Line::Request(text.into()));
        inbox.bytes.extend(b"\n\nab\nfour\nhal");
        assert_eq!(inbox.cut(), request("ab"));
        assert_eq!(inbox.cut(), request("four"));
        assert_eq!(inbox.cut(), None);
        inbox.bytes.extend(b"f\nlonger\n");
        assert_eq!(inbox.cut(), request("half"));
        assert_eq!(inbox.cut(), Some(Line::TooLong));
        let mut endless = Inbox::new(4);
        endless.bytes.extend(b"12345");
        assert_eq!(endless.cut(), Some(Line::TooLong));
    }
}
