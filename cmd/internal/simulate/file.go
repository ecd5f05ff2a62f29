package simulate

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/millrace/millrace/cmd/internal/lab"
)

// The file of a soak is the JSON of a Result. A new one replaces it by a rename, so after a crash it is the
// old one or the new one. Its sum tells a file that was cut or edited from one that this program has
// written: counts that are wrong would go unnoticed for as long as the soak lasts.

// DamagedError is the error of a file that is not what this program has written.
type DamagedError struct{ Path, Reason string }

func (e *DamagedError) Error() string {
	return fmt.Sprintf("%s is not a whole result of millrace sim: %s. Nothing was changed in it; move it away to begin again with an empty one", e.Path, e.Reason)
}

// maxFile bounds what is read: a hundred failures with stacks are far below.
const maxFile = 64 << 20

// Load reads a result. The error is a *DamagedError, or that of the file.
func Load(path string) (*Result, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxFile {
		return nil, &DamagedError{path, fmt.Sprintf("it has %d bytes, and a result at most %d", info.Size(), maxFile)}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r, err := decode(data)
	if err != nil {
		return nil, &DamagedError{path, err.Error()}
	}
	return r, nil
}

// decode reads what Encode wrote, and nothing else.
func decode(data []byte) (*Result, error) {
	var r Result
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	switch err := d.Decode(&r); {
	case len(bytes.TrimSpace(data)) == 0:
		return nil, errors.New("it is empty")
	case r.Format == format && r.Version > version:
		return nil, fmt.Errorf("it has version %d, and this program reads up to %d", r.Version, version)
	case err != nil:
		return nil, err
	case r.Format != format || r.Version != version:
		return nil, fmt.Errorf("its format is %q version %d, want %q version %d", r.Format, r.Version, format, version)
	}
	sum := r.Sum
	again, err := r.Encode()
	if err != nil {
		return nil, err
	}
	if r.Sum != sum {
		return nil, fmt.Errorf("its sum is %.12s…, and that of its content %.12s…", sum, r.Sum)
	}
	if !bytes.Equal(bytes.TrimSpace(again), bytes.TrimSpace(data)) {
		return nil, errors.New("it has the sum of its content and other bytes")
	}
	return &r, r.check()
}

// check reports counts that contradict each other.
func (r *Result) check() error {
	var seeds uint64
	for _, p := range r.Pieces {
		if p.Of == 0 || p.Index >= p.Of || p.From > p.To {
			return fmt.Errorf("it has the seeds [%d, %d) of shard %v", p.From, p.To, p.Part)
		}
		seeds += p.Seeds()
	}
	if seeds != r.Seeds() {
		return fmt.Errorf("its pieces have %d seeds, and its levels %d", seeds, r.Seeds())
	}
	return nil
}

// Encode returns the JSON of a result with its sum, which it sets.
func (r *Result) Encode() ([]byte, error) {
	r.Sum = ""
	bare, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(bare)
	r.Sum = hex.EncodeToString(sum[:])
	data, err := json.MarshalIndent(r, "", " ")
	return append(data, '\n'), err
}

// Soak is a file in which results are added up.
type Soak struct {
	path string
	last []byte // what this process has read or written; nil: there was no file
}

// OpenSoak reads the file of a plan, if it exists, and moves the plan behind the seeds that are in it. The
// result is the file's, or an empty one. done says that the file has all seeds of the plan.
func OpenSoak(p *Plan) (s *Soak, r *Result, done bool, err error) {
	s = &Soak{path: p.Soak}
	r, err = Load(p.Soak)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(filepath.Dir(p.Soak)); err != nil {
			return nil, nil, false, lab.Cannot("Soak", "%v", err)
		}
		return s, NewResult(p), false, nil
	}
	if err != nil {
		return nil, nil, false, err
	}
	if s.last, err = r.Encode(); err != nil {
		return nil, nil, false, err
	}
	done, err = p.resume(r)
	return s, r, done, err
}

// resume moves the seeds of a plan behind those of an earlier result.
func (p *Plan) resume(r *Result) (done bool, err error) {
	if r.Profile != p.Profile || r.Length != p.Length || !slices.Equal(r.Without, p.Without) || !slices.Equal(r.Skip, p.Skip) {
		return false, lab.Invalid("Soak", "the file has results of the profile %s (%s), and this run is of %s (%s): results of different runs are not added up",
			r.Profile, describeSchedule(r.Length, r.Without, r.Skip), p.Profile, describeSchedule(p.Length, p.Without, p.Skip))
	}
	for _, piece := range r.Pieces {
		switch {
		case piece.Part != p.Part:
			return false, lab.Invalid("Soak", "the file has seeds of shard %v, and this run is of shard %v; each shard has a file of its own", piece.Part, p.Part)
		case p.Seeds.From >= piece.From:
			p.Seeds.From = max(p.Seeds.From, piece.To)
		case p.Seeds.To > piece.From:
			return false, lab.Invalid("Soak", "the file begins with seed %d, and this run with %d; earlier seeds need another file", piece.From, p.Seeds.From)
		}
	}
	return p.Seeds.From >= p.Seeds.To, nil
}

func describeSchedule(length int, without []string, skip []int) string {
	text := "length of each level"
	if length > 0 {
		text = fmt.Sprint("length ", length)
	}
	if len(without) > 0 {
		text += fmt.Sprint(", without ", without)
	}
	if len(skip) > 0 {
		text += ", skipping " + FormatNumbers(skip)
	}
	return text
}

// Save replaces the file. It refuses if another process has replaced it since: then two runs use the same
// file, and one of them would lose what it has done.
func (s *Soak) Save(r *Result) error {
	have, err := os.ReadFile(s.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if !bytes.Equal(have, s.last) {
		return fmt.Errorf("%s was changed by another process since this one has read or written it; this one has not written it again", s.path)
	}
	data, err := r.Encode()
	if err != nil {
		return err
	}
	if err := WriteFile(s.path, data); err != nil {
		return err
	}
	s.last = data
	return nil
}

// WriteFile replaces a file durably: a crash leaves the old file or the new one.
func WriteFile(path string, data []byte) (err error) {
	draft, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(draft.Name()))
		}
	}()
	_, err = draft.Write(data)
	if err = errors.Join(err, draft.Chmod(0o644), draft.Sync(), draft.Close()); err != nil {
		return err
	}
	if err := os.Rename(draft.Name(), path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil // the file is there; only its name may be lost in a power cut
	}
	_ = dir.Sync() // some filesystems cannot
	return dir.Close()
}
