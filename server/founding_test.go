package server

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/server/config"
)

// A member of a new cluster says by name whom it waits for.
func TestWhoIsMissing(t *testing.T) {
	said := make(sentences, 16)
	addrs := ports(t, 3)
	l, err := config.Load([]string{
		"--name=m1", "--data-dir=" + t.TempDir(), "--listen-peer-urls=http://" + addrs[0], "--listen-client-urls=http://" + ports(t, 1)[0],
		"--initial-cluster=m1=http://" + addrs[0] + ",m2=http://" + addrs[1] + ",m3=http://" + addrs[2],
		"--initial-advertise-peer-urls=http://" + addrs[0], "--heartbeat-interval=20", "--election-timeout=200",
	}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Start(t.Context(), Config{Config: l.Config, Logger: slog.New(slog.NewTextHandler(said, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	want := "the cluster is new and waits for m2 (http://" + addrs[1] + "), m3 (http://" + addrs[2] + "): every member of --initial-cluster must be up once"
	enough := time.After(20 * time.Second)
	for {
		select {
		case line := <-said:
			if strings.Contains(line, want) {
				return
			}
		case <-enough:
			t.Fatalf("it has not said in 20 s: %s", want)
		}
	}
}

// sentences are lines of a log.
type sentences chan string

func (s sentences) Write(line []byte) (int, error) {
	select {
	case s <- string(line):
	default:
	}
	return len(line), nil
}
