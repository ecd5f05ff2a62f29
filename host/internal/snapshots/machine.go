package snapshots

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/millrace/millrace/snapshot"
	"github.com/millrace/millrace/vfs"
)

// View is the state of a machine at one moment. WriteTo runs beside the machine, at most once.
type View interface {
	WriteTo(ctx context.Context, w io.Writer) error
	Close() error
}

// Machine is a state machine whose state can be written and read. All its methods are functions of the user,
// except TakesFiles and Callee.
type Machine interface {
	// Capture returns the state as it is, and never nil without an error.
	Capture() (View, error)
	// Files returns the files of a view that was written.
	Files(v View) []File
	// TakesFiles reports whether RestoreFiles may be called.
	TakesFiles() bool
	// Callee names the function of the user that WriteTo of a view is in the middle of.
	Callee(v View) string
	Restore(ctx context.Context, r io.Reader) error
	RestoreFiles(ctx context.Context, r io.Reader, files *Files) error
}

// File is a file of a state machine.
type File struct{ Name, Path string }

const (
	// StateStream is the stream of the machine, and the others are streams of the host in a snapshot.
	StateStream    = "state"
	SessionsStream = "sessions"
	ObjectsStream  = "objects"
	maxFiles       = 1 << 16
)

// ErrEnded is why a function of the user has not returned.
var ErrEnded = errors.New("ended its goroutine (runtime.Goexit, as t.Fatal does)")

// IsDamage reports whether an error says that a snapshot cannot be read.
func IsDamage(err error) bool { return errors.As(err, new(*snapshot.DamageError)) }

// Restore makes the state of a machine that of a snapshot, or leaves it as it is and returns an error.
func Restore(ctx context.Context, machine Machine, m *snapshot.Manifest, r *snapshot.Reader) (err error) {
	files := &Files{m, r}
	if names := files.Names(); !machine.TakesFiles() && len(names) > 0 {
		return fmt.Errorf("it has %d files, and the state machine has no method RestoreFiles (FileRestorer); open the group with the machine that it was taken of", len(names))
	}
	state, err := r.Stream(snapshot.KindMachine, StateStream)
	if err != nil {
		return err
	}
	watched := &damageReader{r: state}
	returned, name := false, "Restore"
	if machine.TakesFiles() {
		name = "RestoreFiles"
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s of the state machine panicked: %v\n%s", name, p, debug.Stack())
		} else if !returned {
			err = fmt.Errorf("%s of the state machine %w", name, ErrEnded)
		}
		if watched.cause != nil {
			err = watched.cause // whatever the machine made of it
		}
		err = errors.Join(err, state.Close())
	}()
	if machine.TakesFiles() {
		err = machine.RestoreFiles(ctx, watched, files)
	} else {
		err = machine.Restore(ctx, watched)
	}
	returned = true
	return err
}

// damageReader remembers that what it reads is damaged, or cannot be opened for now: a machine may return
// another error.
type damageReader struct {
	r     io.Reader
	cause error
}

func (d *damageReader) Read(b []byte) (int, error) {
	n, err := d.r.Read(b)
	if IsDamage(err) || vfs.IsShort(err) {
		d.cause = err
	}
	return n, err
}

// Files are the files of a snapshot that is being restored.
type Files struct {
	manifest *snapshot.Manifest
	reader   *snapshot.Reader
}

// Names returns the names of the files.
func (f *Files) Names() (names []string) {
	for i := range f.manifest.Parts {
		if p := &f.manifest.Parts[i]; p.Kind == snapshot.KindFile {
			names = append(names, p.Name)
		}
	}
	return names
}

// Open returns the content of a file. Each byte is checked when it is read.
func (f *Files) Open(name string) (io.ReadCloser, error) {
	return f.reader.Stream(snapshot.KindFile, name)
}

// Link makes path a hard link of a file, without reading it.
func (f *Files) Link(name, path string) error { return f.reader.Link(name, path) }

// ReadForm reads a stream of the host, of at most most bytes.
func ReadForm(p *Published, r *snapshot.Reader, name string, most int64) ([]byte, error) {
	bytes := int64(0)
	for i := range p.Manifest.Parts {
		if part := &p.Manifest.Parts[i]; part.Kind == snapshot.KindHost && part.Name == name {
			bytes += part.Bytes
		}
	}
	if bytes > most {
		return nil, fmt.Errorf("they take %d bytes, want at most %d; give all members of the group the same options", bytes, most)
	}
	stream, err := r.Stream(snapshot.KindHost, name)
	if err != nil {
		return nil, err
	}
	form := make([]byte, bytes)
	_, err = io.ReadFull(stream, form)
	return form, errors.Join(err, stream.Close())
}
