package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// logs are the programs that `millrace bench wal` builds and asks.
var logs = []string{"etcdwal", "raftwal", "boltdb"}

// logRequest is the JSON of its request (cmd/lab/peerlog). This module does not import the lab.
type logRequest struct {
	Dir          string        `json:"dir"`
	Appenders    int           `json:"appenders"`
	Groups       int           `json:"groups"`
	ValueBytes   int           `json:"value_bytes"`
	KeepBytes    int64         `json:"keep_bytes"`
	RecoverBytes int64         `json:"recover_bytes"`
	Length       time.Duration `json:"length_ns"`
}

// A moment of every case. The children read back what they have acknowledged, and answer with an error if
// they cannot.
func TestEveryLogKeepsWhatItAcknowledged(t *testing.T) {
	for _, log := range logs {
		t.Run(log, func(t *testing.T) {
			t.Parallel()
			program := filepath.Join(t.TempDir(), log)
			build := exec.Command("go", "build", "-o", program, ".")
			build.Dir = filepath.Join("others", "logs", log)
			build.Env = append(os.Environ(), "GOWORK=off")
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, r := range []logRequest{
				{Appenders: 8, Groups: 1, ValueBytes: 4096, KeepBytes: 1 << 20, Length: 200 * time.Millisecond}, // long enough to compact
				{Appenders: 8, Groups: 3, ValueBytes: 256, KeepBytes: 1 << 20, Length: 50 * time.Millisecond},
				{Groups: 1, ValueBytes: 1024, RecoverBytes: 4 << 20},
			} {
				r.Dir = t.TempDir()
				if err := askLog(program, r); err != nil {
					t.Errorf("%+v: %v", r, err)
				}
			}
		})
	}
}

func askLog(program string, r logRequest) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	child := exec.Command(program)
	child.Stdin = strings.NewReader(string(text))
	out, err := child.Output()
	if err != nil {
		return err
	}
	var answer struct {
		Error  string
		Result *struct {
			Ops    int
			Fsyncs int
		}
	}
	if err := json.Unmarshal(out, &answer); err != nil {
		return err
	}
	// Every batch needs an fsync. A log that reports none did not count them, or did not make them.
	if answer.Result == nil || answer.Result.Ops == 0 || (r.Appenders > 0 && answer.Result.Fsyncs == 0) {
		return fmt.Errorf("answered %s", out)
	}
	return nil
}
