package object

import (
	"encoding/hex"
	"errors"
	"fmt"
	"time"
)

// ID names a set of bytes in its group. The member that opens it draws it at random.
type ID [16]byte

// IsZero reports whether it names nothing.
func (id ID) IsZero() bool { return id == ID{} }

// String returns 32 hexadecimal digits, which are also the name of the directory.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// ParseID reads what String returns, and nothing else.
func ParseID(text string) (id ID, err error) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(id) || hex.EncodeToString(b) != text {
		return id, fmt.Errorf("%.40q names no object, want %d hexadecimal digits in lower case", text, 2*len(id))
	}
	return ID(b), nil
}

// Set is what a group knows of one set of bytes.
type Set struct {
	ID ID
	// Bytes is the length of the content, and Hash the SHA-256 of the manifest, which has the checksums of
	// all blocks. Manifest is the length of that.
	Bytes    int64
	Hash     [32]byte
	Manifest int64
	// Uploader is the member that had the bytes first.
	Uploader uint64
	// Opened is the index of the entry open, and Held that of the entry hold; 0: no quorum is known to have
	// it.
	Opened, Held uint64
	// Holders are the members that the entry hold named, by id.
	Holders []Holder
	// Life is how long it is there if no command keeps it: from its entry open on, and from its last release.
	// Expires is the log time at which it goes; it counts if the set is not Kept.
	Life, Expires time.Duration
	Kept          bool
}

// Holder is a member that has a set durably, in one of its directories.
type Holder struct {
	ID          uint64
	Incarnation [16]byte
}

// Gone is a set that is not there any more.
type Gone struct {
	ID ID
	// Index is the entry at which it went. Its files stay until the log through this entry is gone.
	Index uint64
}

// The bounds of sets.
const (
	MaxBytes = 128 << 30 // of one set: its manifest takes 8 MiB
	// MaxManifest bounds the manifest of a set, which a member that fetches it has in memory meanwhile.
	MaxManifest = 16 << 20
	MinLife     = time.Second
	MaxLife     = 30 * 24 * time.Hour
	// MaxHolders bounds the members that an entry hold names.
	MaxHolders = 4096
)

// Options bound a table. All members of a group must have the same ones. The zero value stands for the
// defaults.
type Options struct {
	// MaxSets bounds the sets; default 16,384, at most 1,048,576. MaxBytes bounds their contents in all;
	// default and at most 192 GiB. Both are what the manifest of a snapshot has space for.
	MaxSets  int
	MaxBytes int64
}

const (
	defaultSets = 16 << 10
	maxSets     = 32 << 10
	maxBytes    = 192 << 30
)

// WithDefaults returns o with a value for each bound.
func (o Options) WithDefaults() Options {
	if o.MaxSets == 0 {
		o.MaxSets = defaultSets
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = maxBytes
	}
	return o
}

// Validate explains what is wrong with o, in which 0 stands for a default.
func (o Options) Validate() error {
	switch o = o.WithDefaults(); {
	case o.MaxSets < 1 || o.MaxSets > maxSets:
		return fmt.Errorf("millrace: a group may have %d objects, want 1 to %d", o.MaxSets, maxSets)
	case o.MaxBytes < 1 || o.MaxBytes > maxBytes:
		return fmt.Errorf("millrace: the objects of a group may have %d bytes, want 1 to %d", o.MaxBytes, int64(maxBytes))
	}
	return nil
}

// The errors of a table, to be matched with errors.Is. Each comes with a sentence.
var (
	// ErrUnknown: there is no set with this id. It was never opened, or it has expired.
	ErrUnknown = errors.New("millrace: the group has no such object")
	// ErrNotHeld: no quorum is known to have the set yet.
	ErrNotHeld = errors.New("millrace: no quorum holds the object")
	// ErrRefused: the entry changes nothing.
	ErrRefused = errors.New("millrace: refused for an object")
)
