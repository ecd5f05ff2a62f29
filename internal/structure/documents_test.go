package structure

import (
	"io/fs"
	"path/filepath"
	"testing"
)

// maxDocuments bounds the files of docs, pictures included. What a test reads or writes belongs in testdata,
// and what concerns an existing page belongs on it.
//
// TODO(#33): 45, when internals/batches.md and its four pictures have gone.
const maxDocuments = 49

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
