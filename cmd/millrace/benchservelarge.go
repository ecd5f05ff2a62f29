package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/millrace/millrace/cmd/internal/service"
)

// minLargeBytes and maxLargeBytes bound what the load large writes, maxRate its puts a second.
const (
	minLargeBytes = 1 << 20
	maxLargeBytes = 16 << 40
	maxRate       = 1_000_000
)

// units of --bytes, the longer ones first.
var byteUnits = []struct {
	name  string
	bytes int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// parseBytes reads a number of bytes with its unit.
func parseBytes(text string) (int64, error) {
	for _, u := range byteUnits {
		if number, ok := strings.CutSuffix(text, u.name); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
			if err != nil || !(n > 0 && n*float64(u.bytes) <= maxLargeBytes) {
				break
			}
			return int64(n * float64(u.bytes)), nil
		}
	}
	return 0, fmt.Errorf("%q is no number of bytes, want such as 64MiB or 20GiB", text)
}

// planLarge checks the flags of the load large.
func (f *benchServeFlags) planLarge() (p service.Large, err error) {
	loads := f.loads
	f.loads = string(service.Put) // the other flags are checked as for it
	general, err := f.plan()
	f.loads = loads
	if err != nil {
		return p, err
	}
	bytes, err := parseBytes(f.bytes)
	switch {
	case err != nil:
		return p, usageError{fmt.Errorf("--bytes: %w", err)}
	case bytes < minLargeBytes:
		return p, usageError{fmt.Errorf("--bytes is %d, want at least %d", bytes, minLargeBytes)}
	case f.rate < 0 || f.rate > maxRate:
		return p, usageError{fmt.Errorf("--rate is %d, want 0 to %d", f.rate, maxRate)}
	}
	for _, l := range general.Loads {
		p.Clients = max(p.Clients, l.Clients)
	}
	p.Members, p.Bytes, p.ValueBytes, p.Rate, p.Duration = f.members, bytes, f.valueBytes, f.rate, f.duration
	return p, nil
}

// runLarge measures the systems one after the other, each with a report of its own.
func (f *benchServeFlags) runLarge(ctx context.Context, a app) error {
	p, err := f.planLarge()
	if err != nil {
		return err
	}
	systems, missing, err := f.programs(ctx, a)
	if err != nil {
		return err
	}
	for _, s := range systems {
		p.System = s
		if err := f.runLargeOn(ctx, a, p); err != nil {
			return err
		}
	}
	for _, m := range missing {
		fmt.Fprintf(a.stderr, "not measured: %s\n", m)
	}
	return nil
}

func (f *benchServeFlags) runLargeOn(ctx context.Context, a app, p service.Large) (err error) {
	if p.Dir, err = os.MkdirTemp(f.dir, "millrace-serve-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(p.Dir)) }()
	report, err := service.RunLarge(ctx, p, func(what string) {
		if w := f.tell(a); w != nil {
			fmt.Fprintf(w, "%s: %s\n", p.System.Name, what)
		}
	})
	if report.Writes.Count == 0 {
		return err
	}
	write := report.WriteTable
	if f.json {
		write = report.WriteJSON
	}
	return errors.Join(write(a.stdout), err)
}
