//! Identities and labels in their customary spelling.

/// 16 bytes as `8-4-4-4-12` hex digits; `None` if all are zero.
pub(super) fn uuid(bytes: &[u8]) -> Option<String> {
    if bytes.iter().all(|&byte| byte == 0) {
        return None;
    }
    let mut text = String::new();
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    Some(text)
}

/// A GUID whose first three fields are stored little-endian.
pub(super) fn guid(bytes: &[u8]) -> Option<String> {
    let mut swapped = bytes.to_vec();
    for (start, end) in [(0, 4), (4, 6), (6, 8)] {
        swapped.get_mut(start..end)?.reverse();
    }
    uuid(&swapped)
}

/// Text up to the first zero, without blanks at its end; `None` if empty.
pub(super) fn label(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    let text = String::from_utf8_lossy(&bytes[..end]);
    let text = text.trim_end();
    (!text.is_empty()).then(|| text.to_owned())
}

/// UTF-16 little-endian text up to the first zero.
pub(super) fn label_utf16(bytes: &[u8]) -> Option<String> {
    let units = bytes.chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
    let units: Vec<u16> = units.take_while(|&unit| unit != 0).collect();
    (!units.is_empty()).then(|| String::from_utf16_lossy(&units))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings() {
        let bytes: Vec<u8> = (0..16).collect();
        assert_eq!(uuid(&bytes).as_deref(), Some("00010203-0405-0607-0809-0a0b0c0d0e0f"));
        assert_eq!(guid(&bytes).as_deref(), Some("03020100-0504-0706-0809-0a0b0c0d0e0f"));
        assert_eq!(uuid(&[0; 16]), None);
        assert_eq!(label(b"home  \0junk").as_deref(), Some("home"));
        assert_eq!(label(b"\0"), None);
        assert_eq!(label_utf16(b"h\0i\0\0\0x\0").as_deref(), Some("hi"));
    }
}
