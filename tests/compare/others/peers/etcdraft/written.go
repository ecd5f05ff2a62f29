package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
)

// createWAL makes a log. If written is not 0, the first segment has at least that size, and all its blocks
// are written before the load begins. Of itself etcd's log only reserves them. Its later segments cannot
// be reached from outside.
func createWAL(dir string, written int64) (*wal.WAL, error) {
	if written == 0 {
		return wal.Create(zap.NewNop(), dir, nil)
	}
	wal.SegmentSizeBytes = max(written, minSegmentBytes)
	w, err := wal.Create(zap.NewNop(), dir, nil)
	if err != nil {
		return nil, err
	}
	if err := writeBlocks(dir); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

const (
	minSegmentBytes = 64 << 20 // what etcd takes
	headBytes       = 1 << 20  // in which all is that the log has written until now
	pieceBytes      = 1 << 20
)

// writeBlocks writes zeros over the zeros of the one segment of a new log.
func writeBlocks(dir string) error {
	names, err := filepath.Glob(filepath.Join(dir, "*.wal"))
	if err != nil || len(names) != 1 {
		return fmt.Errorf("%s has %d segments (%v), want one", dir, len(names), err)
	}
	f, err := os.OpenFile(names[0], os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	head := make([]byte, headBytes)
	if _, err := f.ReadAt(head, 0); err != nil && err != io.EOF {
		return err
	}
	at := int64(len(bytes.TrimRight(head, "\x00"))+4095) &^ 4095
	zeros := make([]byte, pieceBytes)
	for ; at < info.Size(); at += pieceBytes {
		if _, err := f.WriteAt(zeros[:min(pieceBytes, info.Size()-at)], at); err != nil {
			return err
		}
	}
	return f.Sync()
}
