package main

import (
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// platforms are those that have binaries.
var platforms = []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}}

type platform struct{ os, arch string }

// artifacts makes what is published beside the tags of a version: in out, which must not exist.
//
//	proxy/                        the modules, as a module proxy serves them
//	millrace-VERSION-OS-ARCH      static binaries, as go install makes them
//	  … .cdx.json                 what each consists of (an SBOM, CycloneDX)
//	millrace-VERSION-image.tar    an image of the Linux binaries (an OCI layout)
//	notes.md                      the version's part of the CHANGELOG
//	SHA256SUMS                    of all of these, without proxy
type artifacts struct {
	root, version, out string
	platforms          []platform
	log                io.Writer
}

func (a *artifacts) run(ctx context.Context) error {
	if _, err := git(a.root, "rev-parse", "--verify", "--quiet", a.version+"^{commit}"); err != nil {
		return fmt.Errorf("there is no tag %s: make the release first", a.version)
	}
	if err := os.Mkdir(a.out, 0o755); err != nil {
		return err
	}
	out, err := filepath.Abs(a.out)
	if err != nil {
		return err
	}
	a.out = out
	for _, dir := range append([]string{""}, nested...) {
		if err := a.module(dir); err != nil {
			return fmt.Errorf("module %s: %w", path.Join(library, dir), err)
		}
	}
	var binaries []string
	for _, p := range a.platforms {
		name, err := a.binary(ctx, p)
		if err != nil {
			return fmt.Errorf("binary for %s/%s: %w", p.os, p.arch, err)
		}
		if err := a.materials(name); err != nil {
			return fmt.Errorf("materials of %s: %w", name, err)
		}
		binaries = append(binaries, name)
	}
	if err := a.image(binaries); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	if err := a.notes(); err != nil {
		return fmt.Errorf("notes: %w", err)
	}
	return a.sums()
}

// module writes a module of the tag as the files of a module proxy (go.dev/ref/mod#goproxy-protocol).
func (a *artifacts) module(dir string) error {
	at := filepath.Join(a.out, "proxy", filepath.FromSlash(path.Join(library, dir)), "@v")
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	mod, err := git(a.root, "show", a.version+":"+path.Join(dir, "go.mod"))
	if err != nil {
		return err
	}
	if strings.Contains(mod, "\nreplace ") {
		return errors.New("its go.mod has a replace")
	}
	when, err := git(a.root, "log", "-1", "--format=%cI", a.version)
	if err != nil {
		return err
	}
	t, err := time.Parse(time.RFC3339, when)
	if err != nil {
		return err
	}
	info, err := json.Marshal(struct {
		Version string
		Time    time.Time
	}{a.version, t.UTC()})
	if err != nil {
		return err
	}
	for name, text := range map[string]string{"list": a.version + "\n", a.version + ".info": string(info), a.version + ".mod": mod + "\n"} {
		if err := os.WriteFile(filepath.Join(at, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	f, err := os.Create(filepath.Join(at, a.version+".zip"))
	if err != nil {
		return err
	}
	err = zip.CreateFromVCS(f, module.Version{Path: path.Join(library, dir), Version: a.version}, a.root, a.version, dir)
	return errors.Join(err, f.Close())
}

// binary installs the program for a platform, from the modules that were just written, and returns its name.
func (a *artifacts) binary(ctx context.Context, p platform) (string, error) {
	scratch, err := os.MkdirTemp("", "millrace-release-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(scratch)
	outside, err := goEnv("GOPROXY")
	if err != nil {
		return "", err
	}
	cache, err := goEnv("GOMODCACHE")
	if err != nil {
		return "", err
	}
	// The modules of others come from where they always do, or were fetched before. Ours are not published yet.
	proxies := "file://" + filepath.ToSlash(filepath.Join(a.out, "proxy")) + ",file://" + filepath.ToSlash(cache) + "/cache/download," + outside
	cmd := exec.CommandContext(ctx, "go", "install", "-trimpath", "-ldflags=-s -w", library+"/cmd/millrace@"+a.version)
	cmd.Dir = scratch
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-modcacherw", "GOBIN=", "GOPATH="+scratch, "GOMODCACHE=", "CGO_ENABLED=0",
		"GOOS="+p.os, "GOARCH="+p.arch, "GOPROXY="+proxies, "GONOSUMDB="+library)
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, text)
	}
	var made []string
	for _, pattern := range []string{"bin/millrace", "bin/*/millrace"} {
		found, err := filepath.Glob(filepath.Join(scratch, pattern))
		if err != nil {
			return "", err
		}
		made = append(made, found...)
	}
	if len(made) != 1 {
		return "", fmt.Errorf("go install made %v", made)
	}
	name := fmt.Sprintf("millrace-%s-%s-%s", a.version, p.os, p.arch)
	fmt.Fprintf(a.log, "  %s\n", name)
	return name, copyTo(made[0], filepath.Join(a.out, name), 0o755)
}

func goEnv(name string) (string, error) {
	text, err := exec.Command("go", "env", name).Output()
	return strings.TrimSpace(string(text)), err
}

func copyTo(from, to string, mode os.FileMode) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, mode)
}

// materials writes what a binary consists of, as the binary itself says.
func (a *artifacts) materials(name string) error {
	built, err := buildinfo.ReadFile(filepath.Join(a.out, name))
	if err != nil {
		return err
	}
	main := cyclonedx.Component{
		BOMRef: "main", Type: cyclonedx.ComponentTypeApplication, Name: built.Path, Version: built.Main.Version,
		PackageURL: purl(built.Main.Path, built.Main.Version), Licenses: &cyclonedx.Licenses{{License: &cyclonedx.License{ID: "Apache-2.0"}}},
	}
	components := []cyclonedx.Component{{
		BOMRef: "std", Type: cyclonedx.ComponentTypeLibrary, Name: "std", Version: built.GoVersion, PackageURL: purl("std", strings.TrimPrefix(built.GoVersion, "go")),
	}}
	for _, d := range built.Deps {
		components = append(components, cyclonedx.Component{
			BOMRef: d.Path, Type: cyclonedx.ComponentTypeLibrary, Name: d.Path, Version: d.Version, PackageURL: purl(d.Path, d.Version),
			Properties: &[]cyclonedx.Property{{Name: "go:sum", Value: d.Sum}},
		})
	}
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Component: &main}
	bom.Components = &components
	f, err := os.Create(filepath.Join(a.out, name+".cdx.json"))
	if err != nil {
		return err
	}
	err = cyclonedx.NewBOMEncoder(f, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
	return errors.Join(err, f.Close())
}

func purl(path, version string) string { return "pkg:golang/" + path + "@" + version }

// notes writes the version's part of the CHANGELOG, or what is there as unreleased.
func (a *artifacts) notes() error {
	text, err := git(a.root, "show", a.version+":CHANGELOG.md")
	if err != nil {
		return err
	}
	sections := strings.Split("\n"+text, "\n## ")[1:]
	for _, name := range []string{a.version, "Unreleased"} {
		at := slices.IndexFunc(sections, func(s string) bool { title, _, _ := strings.Cut(s, "\n"); return strings.HasPrefix(title, name) })
		if at < 0 {
			continue
		}
		_, body, _ := strings.Cut(sections[at], "\n")
		return os.WriteFile(filepath.Join(a.out, "notes.md"), []byte("# Millrace "+a.version+"\n"+strings.TrimRight(body, "\n")+"\n"), 0o644)
	}
	return fmt.Errorf("the CHANGELOG has no section %s and no section Unreleased", a.version)
}
