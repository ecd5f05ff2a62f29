package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/report/page"
)

// The marks in a document between which lab report --into writes. What is outside them is the author's.
const (
	intoBegin = "<!-- lab report: begin -->\n"
	intoEnd   = "<!-- lab report: end -->\n"
)

// reportInto writes the tables of runs into a document, between its marks, with their pictures.
func reportInto(document, pictures string, archives []*archive.Archive) error {
	document, err := filepath.EvalSymlinks(document) // what is replaced is the file, and not a link to it
	if err != nil {
		return statusError{exitCannot, fmt.Errorf("--into: %w", err)}
	}
	text, err := os.ReadFile(document)
	if err != nil {
		return statusError{exitCannot, fmt.Errorf("--into: %w", err)}
	}
	begin, end := bytes.Index(text, []byte(intoBegin)), bytes.Index(text, []byte(intoEnd))
	if begin < 0 || end < begin {
		return statusError{exitCannot, fmt.Errorf("--into: %s has no line %q with a later line %q: write both where the tables belong", document, intoBegin[:len(intoBegin)-1], intoEnd[:len(intoEnd)-1])}
	}
	if bytes.Count(text, []byte(intoBegin)) > 1 || bytes.Count(text, []byte(intoEnd)) > 1 { // what is between two pairs is the author's
		return statusError{exitCannot, fmt.Errorf("--into: %s has a line %q or %q more than once: one of each says where the tables belong", document, intoBegin[:len(intoBegin)-1], intoEnd[:len(intoEnd)-1])}
	}
	var b bytes.Buffer
	b.Write(text[:begin+len(intoBegin)])
	runs := map[string]int{} // of a recipe
	for _, of := range archives {
		b.WriteByte('\n')
		if err := page.ViewOf(of).WriteMarkdown(&b); err != nil {
			return err
		}
		name := of.Run.Recipe
		if runs[name]++; runs[name] > 1 {
			name += "-" + strconv.Itoa(runs[of.Run.Recipe])
		}
		if err := linkPictures(&b, document, pictures, name, of); err != nil {
			return err
		}
	}
	b.WriteByte('\n')
	b.Write(text[end:])
	return archive.WriteFile(document, func(w io.Writer) error {
		_, err := w.Write(b.Bytes())
		return err
	})
}

// linkPictures writes the pictures of a run, under names that begin with run, and the lines that show them.
func linkPictures(b *bytes.Buffer, document, dir, run string, of *archive.Archive) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return lab.Cannot("Out", "cannot create %s: %v", dir, lab.Cause(err))
	}
	for _, o := range page.PicturesOf(of, page.SVG).Outputs() {
		name := filepath.Join(dir, run+"-"+o.Name)
		if err := archive.WriteFile(name, o.Write); err != nil {
			return err
		}
		from, err := filepath.Abs(filepath.Dir(document))
		if err != nil {
			return err
		}
		to, err := filepath.Abs(name)
		if err != nil {
			return err
		}
		link, err := filepath.Rel(from, to)
		if err != nil {
			return err
		}
		fmt.Fprintf(b, "\n![%s: %s](%s)\n", run, o.Name[:len(o.Name)-len(filepath.Ext(o.Name))], filepath.ToSlash(link))
	}
	return nil
}
