package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

const (
	library = "github.com/millrace/millrace"
	others  = "tests/compare/others/go.mod" // a module that requires the library through the programs
)

// nested are the directories of the modules that are released with the library: the service, programs, and
// package ops. Each may require the library, and those before it.
var nested = []string{"server", "cmd", "ops"}

// release is one run of the command.
type release struct {
	version string
	dryRun  bool
	push    bool
	out     io.Writer

	root string
}

// run releases the repository of dir.
func (r *release) run(dir string) error {
	root, err := git(dir, "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	r.root = root
	if err := r.check(); err != nil {
		return err
	}
	files, err := r.plan()
	if err != nil {
		return err
	}
	fmt.Fprintf(r.out, "release %s of %s: tags %s\n", r.version, r.root, strings.Join(r.tags(), " "))
	for _, f := range files {
		fmt.Fprintf(r.out, "  %s\n", f.path)
	}
	if r.dryRun {
		fmt.Fprintln(r.out, "dry run: nothing was changed")
		return nil
	}
	if err := r.commitAndTag(files); err != nil {
		return err
	}
	if !r.push {
		fmt.Fprintf(r.out, "done, and nothing was pushed. To publish:\n  git push --atomic origin HEAD %s\n", strings.Join(r.tags(), " "))
		return nil
	}
	return r.publish()
}

// tags are those of the version, of the library first.
func (r *release) tags() []string {
	tags := []string{r.version}
	for _, dir := range nested {
		tags = append(tags, dir+"/"+r.version)
	}
	return tags
}

// check returns the first reason not to release.
func (r *release) check() error {
	v := r.version
	switch {
	case !semver.IsValid(v) || semver.Canonical(v) != v:
		return fmt.Errorf("%q is not a version; write v0.1.0 or v0.2.0-rc.1", v)
	case semver.Major(v) != "v0" && semver.Major(v) != "v1":
		return fmt.Errorf("%s needs a module path that ends in /%s, and the library's is %s", v, semver.Major(v), library)
	}
	status, err := git(r.root, "status", "--porcelain")
	if err != nil {
		return err
	}
	if status != "" {
		return fmt.Errorf("the tree is not clean; commit or remove first:\n%s", status)
	}
	if _, err := git(r.root, "symbolic-ref", "--quiet", "HEAD"); err != nil {
		return errors.New("HEAD is on no branch; check one out, so that the commits of the release are not lost")
	}
	patterns := []string{"tag", "--list", "v*"}
	for _, dir := range nested {
		patterns = append(patterns, dir+"/v*")
	}
	tags, err := git(r.root, patterns...)
	if err != nil {
		return err
	}
	for tag := range strings.FieldsSeq(tags) {
		if last := path.Base(tag); semver.IsValid(last) && semver.Compare(v, last) <= 0 {
			return fmt.Errorf("%s is not above the tag %s", v, tag)
		}
	}
	return nil
}

// file is a file of the release: its path from the root, and its text in the tagged commit.
type file struct {
	path string
	text []byte
}

// plan returns the files that the release changes.
func (r *release) plan() ([]file, error) {
	of, err := r.librarySums()
	if err != nil {
		return nil, err
	}
	released := []sums{of}
	var files []file
	for _, dir := range nested {
		module, required, err := r.nestedModule(dir, released)
		if err != nil {
			return nil, err
		}
		checksums, err := r.nestedSums(dir, required)
		if err != nil {
			return nil, err
		}
		if of, err = r.nestedArchive(dir, module, checksums); err != nil {
			return nil, err
		}
		released = append(released, of)
		files = append(files, module, checksums)
	}
	compared, err := r.edit(filepath.Join(r.root, others), func(m *modfile.File) error { return m.AddRequire(library, r.version) })
	return append(files, compared), err
}

// nestedModule is the go.mod of a nested module, with the library and what else is released that it requires
// at the released version, and without a replace. It returns which those are.
func (r *release) nestedModule(dir string, released []sums) (_ file, required []sums, err error) {
	module, err := r.edit(filepath.Join(r.root, dir, "go.mod"), func(m *modfile.File) error {
		for _, of := range released {
			if !slices.ContainsFunc(m.Require, func(q *modfile.Require) bool { return q.Mod.Path == of.module }) {
				continue
			}
			required = append(required, of)
			if err := errors.Join(m.DropReplace(of.module, ""), m.AddRequire(of.module, r.version)); err != nil {
				return err
			}
		}
		for _, old := range m.Replace {
			if old.Old.Path != "" {
				return fmt.Errorf("it replaces %s; only the replace of what is released before it may be dropped", old.Old.Path)
			}
		}
		return nil
	})
	return module, required, err
}

// edit returns a go.mod after a change.
func (r *release) edit(path string, change func(*modfile.File) error) (file, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return file{}, err
	}
	m, err := modfile.Parse(path, text, nil)
	if err != nil {
		return file{}, err
	}
	if err := change(m); err != nil {
		return file{}, fmt.Errorf("%s: %w", path, err)
	}
	m.Cleanup()
	if text, err = m.Format(); err != nil {
		return file{}, err
	}
	short, err := filepath.Rel(r.root, path)
	return file{path: short, text: text}, err
}

// commitAndTag makes both commits and both tags. If a step fails, it undoes the ones before it.
func (r *release) commitAndTag(files []file) (err error) {
	before, err := git(r.root, "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	var tagged []string
	defer func() {
		if err != nil {
			err = errors.Join(err, r.undo(before, tagged))
		}
	}()
	var paths []string
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(r.root, f.path), f.text, 0o644); err != nil {
			return err
		}
		paths = append(paths, f.path)
	}
	message := "release: " + r.version + "\n\nThe programs and package ops require the library at this version instead of the one beside them, so that they can be installed."
	if _, err := git(r.root, append([]string{"commit", "--quiet", "-m", message, "--"}, paths...)...); err != nil {
		return err
	}
	for _, tag := range r.tags() {
		if _, err := git(r.root, "tag", "--annotate", "-m", "Millrace "+r.version, tag); err != nil {
			return err
		}
		tagged = append(tagged, tag)
	}
	if _, err := git(r.root, append([]string{"checkout", "--quiet", before, "--"}, paths...)...); err != nil {
		return err
	}
	message = "release: programs and package ops use the library of the tree again\n\nThe tags of " + r.version + " name the commit before this one."
	_, err = git(r.root, "commit", "--quiet", "-m", message)
	return err
}

// undo takes back what a release that failed has done.
func (r *release) undo(before string, tagged []string) error {
	var errs []error
	for _, tag := range tagged {
		_, err := git(r.root, "tag", "--delete", tag)
		errs = append(errs, err)
	}
	_, err := git(r.root, "reset", "--quiet", "--hard", before)
	if err = errors.Join(append(errs, err)...); err != nil {
		return fmt.Errorf("and it could not be undone; HEAD was %s: %w", before, err)
	}
	return nil
}

// publish pushes the branch and the tags, all or nothing.
func (r *release) publish() error {
	branch, err := git(r.root, "symbolic-ref", "--quiet", "--short", "HEAD")
	if err != nil {
		return err
	}
	remote, err := git(r.root, "config", "branch."+branch+".remote")
	if err != nil || remote == "" {
		remote = "origin"
	}
	if _, err := git(r.root, append([]string{"push", "--atomic", remote, branch}, r.tags()...)...); err != nil {
		return fmt.Errorf("the commits and tags are made, and the push failed: %w", err)
	}
	fmt.Fprintf(r.out, "pushed %s and %s to %s\n", branch, strings.Join(r.tags(), " "), remote)
	return nil
}

// git runs git in dir and returns its output without the space around it.
func git(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(complaint.String()))
	}
	return strings.TrimSpace(out.String()), nil
}
