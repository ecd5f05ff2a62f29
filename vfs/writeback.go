package vfs

// Span is the bytes [Off, Off+Bytes) of a file.
type Span struct{ Off, Bytes int64 }

// With returns the smallest span that covers both. A span of no bytes covers nothing.
func (s Span) With(other Span) Span {
	switch {
	case s.Bytes == 0:
		return other
	case other.Bytes == 0:
		return s
	}
	off := min(s.Off, other.Off)
	return Span{off, max(s.Off+s.Bytes, other.Off+other.Bytes) - off}
}

// WriteBack begins to write next to the disk, and waits until last, with which an earlier call began, has
// been written. So a program that writes a long file and calls it every few bytes keeps the disk busy while
// it writes. It never has more than two spans in the kernel's memory, and its Sync at the end is short.
// Other syncs on the same disk, which would wait behind it, are short too.
//
// It makes nothing durable: only Sync does, of the same file, through any handle. An error is like one of
// Sync (rule 5). Where the file cannot do it, it is synced.
func WriteBack(f File, next, last Span) error {
	if b, ok := f.(interface{ WriteBack(next, last Span) error }); ok {
		return b.WriteBack(next, last)
	}
	return f.Sync()
}
