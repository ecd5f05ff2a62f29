package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
)

// A released copy has artifacts that a user can use: go install and go get through a module proxy of files,
// binaries whose sums are listed, what they consist of, an image, and notes.
func TestArtifacts(t *testing.T) {
	all := platforms
	platforms = all[:2] // each needs a standard library of its own, which takes longer than all else
	t.Cleanup(func() { platforms = all })
	dir := repository(t)
	for _, name := range nested { // the sums of others are not needed, and are not true
		write(t, filepath.Join(dir, name, "go.sum"), "")
	}
	write(t, filepath.Join(dir, "cmd/millrace/main.go"), "// Command millrace.\npackage main\n\nimport (\n\t\"fmt\"\n\n\t_ \""+library+"\"\n\t_ \""+library+"/server\"\n)\n\nfunc main() { fmt.Println(\"millrace\") }\n")
	write(t, filepath.Join(dir, "ops/doc.go"), "package ops\n\nimport _ \""+library+"\"\n")
	write(t, filepath.Join(dir, "CHANGELOG.md"), "# Changelog\n\n## Unreleased\n\nThe first release.\n\n## v0.0.1\n\nOld.\n")
	must(t, dir, "git", "add", ".")
	must(t, dir, "git", "commit", "--quiet", "-m", "programs")
	out := filepath.Join(t.TempDir(), "out")
	if status, _, stderr := releaseIn(t, dir, "--artifacts", out, "v0.1.0"); status != 1 || !strings.Contains(stderr, "there is no tag v0.1.0") {
		t.Errorf("before the release: %d, %s", status, stderr)
	}
	if status, _, stderr := releaseIn(t, dir, "--artifacts", out, "--push", "v0.1.0"); status != 64 || !strings.Contains(stderr, "neither") {
		t.Errorf("%d, %s", status, stderr)
	}
	if status, _, stderr := releaseIn(t, dir, "v0.1.0"); status != 0 {
		t.Fatal(stderr)
	}
	if status, _, stderr := releaseIn(t, dir, "--artifacts", out, "v0.1.0"); status != 0 {
		t.Fatal(stderr)
	}
	checkArtifacts(t, out, "v0.1.0")
	if notes := read(t, filepath.Join(out, "notes.md")); notes != "# Millrace v0.1.0\n\nThe first release.\n" {
		t.Errorf("notes:\n%s", notes)
	}
	if status, _, stderr := releaseIn(t, dir, "--artifacts", out, "v0.1.0"); status != 1 || !strings.Contains(stderr, "exists") {
		t.Errorf("the same directory again: %d, %s", status, stderr)
	}

	// A user's module, and the program, through the proxy alone.
	user, modules := t.TempDir(), t.TempDir()
	env := []string{"GOWORK=off", "GOFLAGS=-modcacherw", "GONOSUMDB=" + library, "GOMODCACHE=" + modules, "GOBIN=" + filepath.Join(user, "bin"),
		"GOPROXY=file://" + filepath.ToSlash(filepath.Join(out, "proxy")) + ",off"}
	write(t, filepath.Join(user, "go.mod"), "module example.com/user\n\ngo 1.26.0\n")
	write(t, filepath.Join(user, "user.go"), "package user\n\nimport _ \""+library+"/ops\"\n")
	mustWith(t, env, user, "go", "get", library+"@v0.1.0", library+"/ops@v0.1.0")
	mustWith(t, env, user, "go", "build", "./...")
	mustWith(t, env, user, "go", "install", library+"/cmd/millrace@v0.1.0")
	if have := must(t, user, filepath.Join(user, "bin", "millrace")); have != "millrace" {
		t.Errorf("the program says %q", have)
	}
}

// TestArchiveHasAnEnd is for what TestArtifacts finds, too, after minutes.
func TestArchiveHasAnEnd(t *testing.T) {
	content, err := archive(map[string][]byte{"a": []byte("1"), "b": make([]byte, 700)}, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if files := untar(t, content); string(files["a"]) != "1" || len(files["b"]) != 700 {
		t.Errorf("%v", files)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// checkArtifacts checks what is in a directory of artifacts.
func checkArtifacts(t *testing.T, out, version string) {
	t.Helper()
	listed := 0
	for line := range strings.Lines(read(t, filepath.Join(out, "SHA256SUMS"))) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		listed++
		if have := fmt.Sprintf("%x", sha256.Sum256([]byte(read(t, filepath.Join(out, name))))); have != sum {
			t.Errorf("%s has the sum %s, and SHA256SUMS %s", name, have, sum)
		}
	}
	if want := 2*len(platforms) + 2; listed != want {
		t.Errorf("%d files are in SHA256SUMS, want %d", listed, want)
	}
	for _, p := range platforms {
		name := filepath.Join(out, fmt.Sprintf("millrace-%s-%s-%s", version, p.os, p.arch))
		if p.os == "linux" && bytes.Contains([]byte(read(t, name)), []byte("/lib64/ld-linux")) {
			t.Errorf("%s is not static", name)
		}
		if p.os == runtime.GOOS && p.arch == runtime.GOARCH {
			must(t, out, name, "version")
		}
		var bom cyclonedx.BOM
		if err := cyclonedx.NewBOMDecoder(strings.NewReader(read(t, name+".cdx.json")), cyclonedx.BOMFileFormatJSON).Decode(&bom); err != nil {
			t.Fatal(err)
		}
		found := false
		for _, c := range *bom.Components {
			found = found || c.PackageURL == "pkg:golang/"+library+"@"+version && strings.HasPrefix((*c.Properties)[0].Value, "h1:")
		}
		if main := bom.Metadata.Component; !found || main.Version != version || main.PackageURL != "pkg:golang/"+library+"/cmd@"+version {
			t.Errorf("%s: %+v, %+v", name, main, bom.Components)
		}
	}
	checkImage(t, filepath.Join(out, "millrace-"+version+"-image.tar"), out, version)
}

// checkImage follows an image from its index to the programs.
func checkImage(t *testing.T, image, out, version string) {
	t.Helper()
	files := untar(t, []byte(read(t, image)))
	blob := func(d descriptor) []byte {
		content := files["blobs/sha256/"+strings.TrimPrefix(d.Digest, "sha256:")]
		if len(content) != d.Size || fmt.Sprintf("sha256:%x", sha256.Sum256(content)) != d.Digest {
			t.Fatalf("%+v has %d bytes", d, len(content))
		}
		return content
	}
	decode := func(content []byte, v any) {
		t.Helper()
		if err := json.Unmarshal(content, v); err != nil {
			t.Fatal(err)
		}
	}
	var index struct{ Manifests []descriptor }
	decode(files["index.json"], &index)
	if len(index.Manifests) != 2 || string(files["oci-layout"]) != `{"imageLayoutVersion":"1.0.0"}` {
		t.Fatalf("%+v", index)
	}
	for _, m := range index.Manifests {
		var manifest struct {
			Config descriptor
			Layers []descriptor
		}
		decode(blob(m), &manifest)
		var config struct {
			Architecture, OS string
			Rootfs           struct {
				DiffIDs []string `json:"diff_ids"`
			}
			Config struct{ Entrypoint []string }
		}
		decode(blob(manifest.Config), &config)
		program := untar(t, blob(manifest.Layers[0]))["millrace"]
		name := fmt.Sprintf("millrace-%s-%s-%s", version, config.OS, config.Architecture)
		if config.Architecture != m.Platform["architecture"] || config.Rootfs.DiffIDs[0] != manifest.Layers[0].Digest || config.Config.Entrypoint[0] != "/millrace" || string(program) != read(t, filepath.Join(out, name)) {
			t.Errorf("%+v: %+v", m, config)
		}
	}
}

// untar reads a tar. It must have its end, two blocks of zeros: tar and docker load refuse it without.
func untar(t *testing.T, content []byte) map[string][]byte {
	t.Helper()
	if n := len(content); n%512 != 0 || n < 1024 || !bytes.Equal(content[n-1024:], make([]byte, 1024)) {
		t.Errorf("a tar of %d bytes has no end", n)
	}
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(content)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}
