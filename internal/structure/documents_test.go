package structure

import (
	"io/fs"
	"path/filepath"
	"testing"
)

// maxDocuments bounds the files of docs, pictures included. What a test reads or writes belongs in testdata,
// and what concerns an existing page belongs on it.
const maxDocuments = 45

func TestDocumentsAreFew(t *testing.T) {
	inRoot(t)
	n := 0
	err := filepath.WalkDir("docs", func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			n++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if n > maxDocuments {
		t.Errorf("docs has %d files; at most %d", n, maxDocuments)
	}
	t.Logf("%d files", n)
}
