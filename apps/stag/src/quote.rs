//! Names as a shell and as `/etc/fstab` read them.

/// One word of a shell's command line.
pub fn shell(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:[]=,@%+".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// One field of a line of `fstab(5)`: blanks and backslashes as octal numbers.
pub fn fstab(text: &str) -> String {
    let mut field = String::new();
    for c in text.chars() {
        match c {
            ' ' | '\t' | '\n' | '\\' | '#' => field.push_str(&format!("\\{:03o}", u32::from(c))),
            _ => field.push(c),
        }
    }
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_stay_and_others_are_quoted() {
        assert_eq!(shell("127.0.0.1:/data"), "127.0.0.1:/data");
        assert_eq!(shell("[::1]:/a b"), "'[::1]:/a b'");
        assert_eq!(shell("it's"), r"'it'\''s'");
        assert_eq!(shell(""), "''");
        assert_eq!(fstab(r"/a b\c#d"), r"/a\040b\134c\043d");
    }
}
