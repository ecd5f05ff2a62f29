package server

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/millrace/millrace/server/config"
)

// NewLogger returns a logger as the configuration wants it, and what closes its files. stderr and
// stdout stand for those of the process.
func NewLogger(c *config.Config, stdout, stderr io.Writer) (*slog.Logger, io.Closer, error) {
	var writers []io.Writer
	var files closers
	for _, name := range c.LogOutputs {
		switch name {
		case "default", "stderr", "systemd/journal":
			writers = append(writers, stderr)
		case "stdout":
			writers = append(writers, stdout)
		default:
			f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			if err != nil {
				_ = files.Close()
				return nil, nil, fmt.Errorf("--log-outputs: %w", err)
			}
			writers, files = append(writers, f), append(files, f)
		}
	}
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn}
	level, ok := levels[c.LogLevel]
	if !ok {
		level = slog.LevelError
	}
	o := &slog.HandlerOptions{Level: level, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) > 0 {
			return a
		}
		switch a.Key { // the names of etcd's lines
		case slog.TimeKey:
			a.Key = "ts"
		case slog.LevelKey:
			a.Value = slog.StringValue(strings.ToLower(a.Value.String()))
		}
		return a
	}}
	w := io.MultiWriter(writers...)
	if c.LogFormat == "console" {
		return slog.New(slog.NewTextHandler(w, o)), files, nil
	}
	return slog.New(slog.NewJSONHandler(w, o)), files, nil
}

type closers []io.Closer

func (c closers) Close() (err error) {
	for _, f := range c {
		err = f.Close()
	}
	return err
}
