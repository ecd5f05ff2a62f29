//! raft-engine on the files of the operating system, with a count of the syncs.

use std::io::Result;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use raft_engine::env::{DefaultFileSystem, FileSystem, Handle, Permission};
use raft_engine::{Config, Engine, ReadableSize};

pub static SYNCS: AtomicU64 = AtomicU64::new(0);

pub struct Counting(DefaultFileSystem);

type Inner = <DefaultFileSystem as FileSystem>::Handle;

pub struct Counted(Arc<Inner>);

impl Handle for Counted {
    fn truncate(&self, offset: usize) -> Result<()> {
        self.0.truncate(offset)
    }
    fn file_size(&self) -> Result<usize> {
        self.0.file_size()
    }
    fn sync(&self) -> Result<()> {
        SYNCS.fetch_add(1, Ordering::Relaxed);
        Handle::sync(&*self.0)
    }
}

impl FileSystem for Counting {
    type Handle = Counted;
    type Reader = <DefaultFileSystem as FileSystem>::Reader;
    type Writer = <DefaultFileSystem as FileSystem>::Writer;

    fn create<P: AsRef<Path>>(&self, path: P) -> Result<Counted> {
        Ok(Counted(Arc::new(self.0.create(path)?)))
    }
    fn open<P: AsRef<Path>>(&self, path: P, perm: Permission) -> Result<Counted> {
        Ok(Counted(Arc::new(self.0.open(path, perm)?)))
    }
    fn delete<P: AsRef<Path>>(&self, path: P) -> Result<()> {
        self.0.delete(path)
    }
    fn rename<P: AsRef<Path>>(&self, from: P, to: P) -> Result<()> {
        self.0.rename(from, to)
    }
    fn new_reader(&self, handle: Arc<Counted>) -> Result<Self::Reader> {
        self.0.new_reader(handle.0.clone())
    }
    fn new_writer(&self, handle: Arc<Counted>) -> Result<Self::Writer> {
        self.0.new_writer(handle.0.clone())
    }
}

pub type Log = Engine<Counting, raft_engine::internals::FilePipeLog<Counting>>;

/// The sizes of a log whose files are recycled: the log is purged beyond one size, and that much and a half is
/// zero-filled at the start.
const FILE_BYTES: u64 = 32 << 20;
const PURGE_BYTES: u64 = 96 << 20;

pub fn open(dir: String, prefilled: bool) -> raft_engine::Result<Log> {
    let mut config = Config {
        dir,
        ..Config::default()
    };
    config.batch_compression_threshold = ReadableSize(0); // the values are random
    if prefilled {
        config.target_file_size = ReadableSize(FILE_BYTES);
        config.purge_threshold = ReadableSize(PURGE_BYTES);
        config.prefill_for_recycle = true;
    }
    Engine::open_with_file_system(config, Arc::new(Counting(DefaultFileSystem)))
}
