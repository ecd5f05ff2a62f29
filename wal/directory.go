package wal

import "github.com/millrace/millrace/vfs"

// directory is where a log's files are. Its methods read and write the files beside the segments: FENCE, LOSS
// and the draft of a salvage.
type directory struct {
	fs   vfs.FS
	path string
}

func (o Options) directory() directory { return directory{fs: o.FS, path: o.Dir} }
