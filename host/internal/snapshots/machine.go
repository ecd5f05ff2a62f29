package snapshots

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/millrace/millrace/host/internal/containment"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/snapshot"
	"github.com/millrace/millrace/vfs"
)

const (
	// StateStream is the stream of the machine, and the others are streams of the host in a snapshot.
	StateStream     = "state"
	SessionsStream  = "sessions"
	PublishedStream = "published"
	ObjectsStream   = "objects"
	maxFiles        = 1 << 16
)

// IsDamage reports whether an error says that a snapshot cannot be read.
func IsDamage(err error) bool { return errors.As(err, new(*snapshot.DamageError)) }

// Restore makes the state of a machine that of a snapshot, or leaves it as it is and returns an error.
func Restore(ctx context.Context, machine statemachine.Snapshotter, m *snapshot.Manifest, r *snapshot.Reader) (err error) {
	files := &Files{m, r}
	restorer, takes := machine.(statemachine.FileRestorer)
	if names := files.Names(); !takes && len(names) > 0 {
		return fmt.Errorf("it has %d files, and the state machine has no method RestoreFiles (FileRestorer); open the group with the machine that it was taken of", len(names))
	}
	state, err := r.Stream(snapshot.KindMachine, StateStream)
	if err != nil {
		return err
	}
	watched := &damageReader{r: state}
	returned, name := false, "Restore"
	if takes {
		name = "RestoreFiles"
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s of the state machine panicked: %v\n%s", name, p, debug.Stack())
		} else if !returned {
			err = fmt.Errorf("%s of the state machine %w", name, containment.ErrEnded)
		}
		if watched.cause != nil {
			err = watched.cause // whatever the machine made of it
		}
		err = errors.Join(err, state.Close())
	}()
	if takes {
		err = restorer.RestoreFiles(ctx, watched, files)
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
