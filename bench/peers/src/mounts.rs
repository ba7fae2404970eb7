//! File systems that are mounted on this host (`proc_pid_mountinfo(5)`).

use std::{fs, path::Path};

/// Directory that is tmpfs on most hosts.
pub const SHARED_MEMORY: &str = "/dev/shm";

/// The type of the file system that has `path`. None if the kernel does not list it.
pub fn file_system(path: &Path) -> Option<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").ok()?;
    type_of(&table, &path.canonicalize().ok()?)
}

/// The type in the line of a table (`proc_pid_mountinfo(5)`) whose mount point is the longest that
/// `path` is below; of mounts at one point, the latest.
fn type_of(table: &str, path: &Path) -> Option<String> {
    let mounts = table.lines().filter_map(|line| {
        let (mount, about) = line.split_once(" - ")?;
        let point = mount.split(' ').nth(4)?;
        path.starts_with(point).then_some((point.len(), about.split(' ').next()?))
    });
    mounts.max_by_key(|(len, _)| *len).map(|(_, name)| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_on_the_latest_mount_at_its_longest_mount_point() {
        let table = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
                     23 22 0:21 / /dev/shm rw - tmpfs tmpfs rw\n\
                     24 22 254:1 / /data rw master:1 shared:2 - xfs /dev/vdb rw\n\
                     25 22 0:30 / /data rw - btrfs /dev/vdc rw\n\
                     a line of another form\n";
        for (path, name) in [
            ("/tmp/x", "ext4"),
            ("/dev/shm/x", "tmpfs"),
            ("/dev/shmem", "ext4"),
            ("/data/y/z", "btrfs"),
        ] {
            assert_eq!(type_of(table, Path::new(path)).as_deref(), Some(name), "{path}");
        }
        assert_eq!(type_of("", Path::new("/")), None);
        assert!(file_system(Path::new("/proc")).is_some_and(|name| name == "proc"));
    }
}
