package structure

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
)

// maxDocuments bounds the files of docs, pictures included, without the program that makes a site of them.
// What a test reads or writes belongs in testdata. What concerns an existing page belongs on it. There were
// 45; the road from the first program to the second year has 7 more.
const maxDocuments = 52

func TestDocumentsAreFew(t *testing.T) {
	inRoot(t)
	n := 0
	err := filepath.WalkDir("docs", func(path string, d fs.DirEntry, err error) error {
		if err == nil && path == "docs/site" {
			return filepath.SkipDir
		}
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

// The front is short: the README has at most 110 lines, ARCHITECTURE.md at most 2,500 words.
func TestFrontIsShort(t *testing.T) {
	inRoot(t)
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(string(readme), "\n"); lines > 110 {
		t.Errorf("the README has %d lines; at most 110", lines)
	}
	architecture, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	words := 0
	for word := range strings.FieldsSeq(string(architecture)) {
		if strings.ContainsFunc(word, unicode.IsLetter) || strings.ContainsFunc(word, unicode.IsDigit) {
			words++
		}
	}
	if words > 2500 {
		t.Errorf("ARCHITECTURE.md has %d words; at most 2,500", words)
	}
	t.Logf("%d words", words)
}
