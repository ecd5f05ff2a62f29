package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/transport/cert"
)

// certify runs a command line of cert.
func certify(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	return runVerb(t, t.Context(), append([]string{"cert"}, args...)...)
}

// makePKI makes a CA and members in a directory.
func makePKI(t *testing.T, dir string, ids ...uint64) {
	t.Helper()
	certs(t, exitOK, "ca --name ours --dir "+dir)
	for _, id := range ids {
		certs(t, exitOK, "member --dir "+dir+" --id "+strconv.FormatUint(id, 10))
	}
}

// certs runs a command line, and returns everything that it says.
func certs(t *testing.T, want int, line string) string {
	t.Helper()
	have, out, errs := certify(t, strings.Fields(line)...)
	if have != want {
		t.Errorf("%s: status %d, want %d\n%s%s", line, have, want, out, errs)
	}
	return out + errs
}

func content(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// What the verbs make is what a host takes, in files that others cannot read, and nothing is replaced
// unasked.
func TestCertMakesWhatAHostTakes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	makePKI(t, dir, 1, 7)
	files := cert.Files{Cert: filepath.Join(dir, "member-7.pem"), Key: filepath.Join(dir, "member-7-key.pem"), CA: filepath.Join(dir, "ca.pem")}
	made, err := files.Load()
	if err != nil {
		t.Fatal(err)
	}
	if err := made.Validate(7, time.Now()); err != nil {
		t.Error(err)
	}
	modes := map[string]os.FileMode{"ca.pem": 0o644, "ca-key.pem": 0o600, "member-1.pem": 0o644, "member-1-key.pem": 0o600, "member-7.pem": 0o644, "member-7-key.pem": 0o600}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != len(modes) {
		t.Errorf("%d files, want %d, %v", len(entries), len(modes), err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode() != modes[e.Name()] {
			t.Errorf("%s: mode %v, want %v, %v", e.Name(), info.Mode(), modes[e.Name()], err)
		}
	}

	before := content(t, files.Cert) + content(t, files.Key) + content(t, files.CA)
	for _, line := range []string{"member --id 7", "ca"} {
		if said := certs(t, exitCannot, line+" --dir "+dir); !strings.Contains(said, "exists; --force replaces it") {
			t.Errorf("%s: %s", line, said)
		}
	}
	if content(t, files.Cert)+content(t, files.Key)+content(t, files.CA) != before {
		t.Error("a refused command has changed files")
	}
	certs(t, exitOK, "member --force --id 7 --dir "+dir)
	if content(t, files.Key) == strings.TrimPrefix(before, content(t, files.Cert)) {
		t.Error("--force has not made a new key")
	}
}

// A renewal keeps the key, also under another CA.
func TestCertRenew(t *testing.T) {
	dir, next := filepath.Join(t.TempDir(), "pki"), filepath.Join(t.TempDir(), "next")
	makePKI(t, dir, 7)
	makePKI(t, next)
	file := filepath.Join(dir, "member-7.pem")
	hash := func(file string) [32]byte {
		parsed, err := cert.Parse([]byte(content(t, file)), 1)
		if err != nil {
			t.Fatal(err)
		}
		return cert.KeyHash(parsed[0])
	}
	first, key := content(t, file), hash(file)
	certs(t, exitOK, "renew --id 7 --days 30 --dir "+dir)
	if content(t, file) == first || hash(file) != key {
		t.Error("the certificate is the same, or its key is not")
	}
	certs(t, exitOK, "renew --id 7 --dir "+next+" --key "+filepath.Join(dir, "member-7-key.pem"))
	if moved := filepath.Join(next, "member-7.pem"); hash(moved) != key {
		t.Error("the key has changed with the CA")
	} else if said := certs(t, exitOK, "inspect "+moved+" "+filepath.Join(next, "ca.pem")); !strings.Contains(said, "member 7") {
		t.Error(said)
	}
}

func TestCertInspect(t *testing.T) {
	dir, other := filepath.Join(t.TempDir(), "pki"), filepath.Join(t.TempDir(), "other")
	makePKI(t, dir, 7)
	makePKI(t, other)
	path := func(name string) string { return filepath.Join(dir, name) }
	said := certs(t, exitOK, "inspect "+path("member-7.pem")+" "+path("member-7-key.pem")+" "+path("ca.pem"))
	for _, want := range []string{"member 7  \"CN=Millrace member 7\"", "CA  \"CN=ours\"", "signed       by the CA with the fingerprint", "key          " + path("member-7-key.pem"), "valid        20"} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q in\n%s", want, said)
		}
	}
	certs(t, exitOK, "inspect "+path("member-7.pem")) // nothing to compare it with
	if said := certs(t, exitDamaged, "inspect "+path("member-7.pem")+" "+filepath.Join(other, "ca.pem")); !strings.Contains(said, "wrong: the certificate is refused") || !strings.Contains(said, "leads to no CA") {
		t.Error(said)
	}
	if err := os.Chmod(path("member-7-key.pem"), 0o644); err != nil {
		t.Fatal(err)
	}
	if said := certs(t, exitDamaged, "inspect "+path("member-7-key.pem")); !strings.Contains(said, "want 0600") {
		t.Error(said)
	}
	if err := os.WriteFile(path("cut.pem"), []byte(content(t, path("ca.pem"))[:100]), 0o600); err != nil {
		t.Fatal(err)
	}
	if said := certs(t, exitDamaged, "inspect "+path("cut.pem")); !strings.Contains(said, "cut off or damaged") {
		t.Error(said)
	}
	if strings.Contains(certs(t, exitOK, "inspect "+path("ca.pem")+" "+path("ca-key.pem")), content(t, path("ca-key.pem"))[40:80]) {
		t.Error("a key is printed")
	}

	var answer struct {
		Valid bool
		Files []struct {
			Kind         string
			Certificates []struct {
				Kind     string
				Member   uint64
				KeyHash  string    `json:"key_hash"`
				NotAfter time.Time `json:"not_after"`
			}
		}
	}
	_, out, _ := certify(t, "inspect", "--json", path("member-7.pem"), path("ca.pem"))
	if err := json.Unmarshal([]byte(out), &answer); err != nil || !answer.Valid || len(answer.Files) != 2 || answer.Files[0].Certificates[0].Member != 7 ||
		len(answer.Files[0].Certificates[0].KeyHash) != 64 || answer.Files[1].Certificates[0].Kind != "CA" || answer.Files[1].Certificates[0].NotAfter.IsZero() {
		t.Errorf("%v in\n%s", err, out)
	}
}
