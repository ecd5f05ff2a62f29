package crashfs

import "fmt"

// Op describes one operation to a hook. Name is the name by which the file was opened. Off and Len are in
// bytes, and set where they mean something.
type Op struct {
	Kind OpKind
	Name string
	Off  int64
	Len  int64
	// Direct is set for a write of a handle that OpenDirect returned.
	Direct bool
}

func (o Op) String() string { return fmt.Sprintf("%s %s [%d, +%d)", o.Kind, o.Name, o.Off, o.Len) }

// OpKind is a kind of operation.
type OpKind int

// The operations.
const (
	OpCreate OpKind = iota
	OpOpen
	OpRename
	OpRemove
	OpReadDir
	OpMkdir
	OpSyncDir
	OpLock
	OpRead
	OpWrite
	OpSync
	OpTruncate
	OpPreallocate
	OpLink // Name is the new name
	OpRemoveDir
	OpWriteBack // Off and Len are those of the span that begins to be written
	OpOpenDir   // Name is the directory's; its syncs are OpSyncDir
)

var opNames = [...]string{"create", "open", "rename", "remove", "readdir", "mkdir", "syncdir", "lock", "read", "write", "sync", "truncate", "preallocate", "link", "rmdir", "writeback", "opendir"}

func (k OpKind) String() string {
	if k < 0 || int(k) >= len(opNames) {
		return fmt.Sprintf("OpKind(%d)", int(k))
	}
	return opNames[k]
}

// Opens are the operations for which the machine's filesystem needs a descriptor: the kinds that fail when
// the process has none left. A Lock is taken once, and needs none here.
func (k OpKind) Opens() bool {
	switch k {
	case OpCreate, OpOpen, OpOpenDir, OpReadDir, OpMkdir:
		return true
	}
	return false
}

// FailNth returns a hook that fails the n-th operation of a kind (1 is the next one) with err, and no other.
// It is for use from one goroutine at a time.
func FailNth(kind OpKind, n int, err error) func(Op) error {
	return func(op Op) error {
		if op.Kind != kind {
			return nil
		}
		n--
		if n == 0 {
			return err
		}
		return nil
	}
}
