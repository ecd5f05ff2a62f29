package spec

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What is missing on a machine is named, with what to do.
func TestWhatIsMissingIsNamed(t *testing.T) {
	missing := func(want string) {
		t.Helper()
		_, _, err := findTLC(t.Context())
		var u *unavailableError
		if !errors.As(err, &u) || !strings.Contains(err.Error(), want) {
			t.Errorf("have %v, want an error that says %q", err, want)
		}
	}
	programs := t.TempDir()
	t.Setenv("PATH", programs)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	missing("no Java on this machine")
	program := func(name, script string) {
		if err := os.WriteFile(filepath.Join(programs, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program("java", "exit 0")
	missing("no Maven on this machine")
	program("mvn", "echo no such artifact; exit 1")
	missing("no such artifact")
}

// A file with another content is not run.
func TestAnotherFileIsRefused(t *testing.T) {
	jar := filepath.Join(t.TempDir(), tlcFile)
	if err := os.WriteFile(jar, []byte("another file"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := verify(jar); err == nil || !strings.Contains(err.Error(), tlcSHA256) {
		t.Errorf("have %v, want an error that names the checksum", err)
	}
}

// A planted error whose bounds name a constant that its model lacks is an error of the table.
func TestUnknownConstant(t *testing.T) {
	if _, err := withConstants("CONSTANTS\n  MaxTerm = 2\n", map[string]string{"MaxTrem": "3"}); err == nil {
		t.Error("an unknown constant was accepted")
	}
	config, err := withConstants("CONSTANTS\n  MaxTerm = 2\nINVARIANTS A B\nPROPERTIES C\n", map[string]string{"MaxTerm": "3"})
	if want := "CONSTANTS\n  MaxTerm = 3\nINVARIANTS A\n"; err != nil || withProperty(config, "A") != want {
		t.Errorf("have %q, %v, want %q", withProperty(config, "A"), err, want)
	}
	if names := propertiesOf(config); strings.Join(names, " ") != "A B C" {
		t.Errorf("have the properties %v", names)
	}
}
