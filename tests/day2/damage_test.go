package day2

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// What power cuts and people do to a directory.

// Each file of a member is gone, empty, cut in half, or has other bytes at a start. Either the member has
// everything, or it says which file it is.
func TestFilesAreDamaged(t *testing.T) {
	d := start(t, 1, func(p *process) { p.extra = []string{"-snapshot-bytes", "65536"} })
	p := d.members[1]
	d.lives(t)
	p.end(t, syscall.SIGTERM)
	saved := filepath.Join(d.root, "saved")
	if err := os.CopyFS(saved, os.DirFS(p.path())); err != nil {
		t.Fatal(err)
	}
	damages := []struct {
		name string
		do   func(name string, b []byte) error
	}{
		{"gone", func(name string, _ []byte) error { return os.Remove(name) }},
		{"empty", func(name string, _ []byte) error { return os.Truncate(name, 0) }},
		{"half", func(name string, b []byte) error { return os.Truncate(name, int64(len(b)/2)) }},
		{"zeros", func(name string, b []byte) error { return overwrite(name, make([]byte, min(len(b), 1<<20))) }},
		{"garbage", func(name string, b []byte) error {
			return overwrite(name, bytes.Repeat([]byte("garbage!"), min(len(b), 1<<20)/8+1))
		}},
		{"null", func(name string, _ []byte) error { return os.WriteFile(name, []byte("null\n"), 0o600) }},
		{"list", func(name string, _ []byte) error { return os.WriteFile(name, []byte("[]\n"), 0o600) }},
	}
	n := 0
	if err := fs.WalkDir(os.DirFS(saved), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		b, err := os.ReadFile(filepath.Join(saved, name))
		if err != nil {
			return err
		}
		for _, damage := range damages {
			if (damage.name == "null" || damage.name == "list") && !strings.HasSuffix(name, ".json") {
				continue
			}
			if err := os.RemoveAll(p.path()); err != nil {
				return err
			}
			if err := os.CopyFS(p.path(), os.DirFS(saved)); err != nil {
				return err
			}
			if err := damage.do(filepath.Join(p.path(), name), b); err != nil {
				return err
			}
			d.startsOrSays(t, name, damage.name)
			n++
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if n < 25 {
		t.Errorf("%d damages were tried, want at least 25", n)
	}
}

func overwrite(name string, b []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	return errors.Join(err, f.Close())
}

// startsOrSays starts member 1 on a damaged directory: it has what it had, or it ends with a sentence that
// names the file, or the directory in which it is.
func (d *day) startsOrSays(t *testing.T, name, damage string) {
	t.Helper()
	p := d.members[1]
	since := p.mark()
	p.begin(t, d.list())
	err := within(maxWait, func() error {
		select {
		case err := <-p.ended:
			p.ended <- err
			return nil
		default:
		}
		text, err := p.get("/balance?account=" + account)
		if err == nil && text != "111" {
			return fmt.Errorf("a balance of %s, want 111", text)
		}
		return err
	})
	if err != nil {
		t.Fatalf("%s, %s: neither the state nor a sentence: %v\n%s", name, damage, err, p.logged(since))
	}
	if len(p.ended) == 0 {
		p.end(t, syscall.SIGKILL)
		return
	}
	if p.exits(t) == nil {
		t.Errorf("%s, %s: it has ended with status 0", name, damage)
	}
	said := p.logged(since)
	if last := said[strings.LastIndex(strings.TrimSpace(said), "\n")+1:]; !strings.Contains(said, filepath.Base(name)) && !strings.Contains(said, filepath.Dir(name)) {
		t.Errorf("%s, %s: the sentence does not name it: %s", name, damage, last)
	}
}

// The directory of a member that runs is removed. It stops with the reason, and the others go on.
func TestDirectoryIsRemoved(t *testing.T) {
	d := start(t, 3, nil)
	p := d.members[3]
	d.add(t, p, 1)
	since := p.mark()
	if err := os.RemoveAll(p.path()); err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if p.exits(t) == nil {
			t.Error("it has ended with status 0")
		}
	}()
	other := d.members[1]
	for n := 0; ; n++ {
		select {
		case <-gone:
			d.add(t, other, 1)
			d.holds(t, other, 2)
			if !strings.Contains(p.logged(since), p.dir) {
				t.Errorf("it does not say what is gone:\n%s", p.logged(since))
			}
			return
		default:
		}
		if n > 60 {
			t.Fatalf("it still runs:\n%s", p.tail())
		}
		d.write(t, other, 1, 6<<20)
	}
}
