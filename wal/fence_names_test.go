package wal

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/vfs/crashfs"
)

// A log of an older version has no FENCE with two copies, so its first recovery makes the file. When that recovery is a salvage,
// the name must be durable before a damaged file gets another one: otherwise a power cut leaves a log that looks whole, lacks
// what was damaged, and may vote. So it must be if a process dies right after it gave the name, and the next one finds it:
// that one cannot know whether the name is durable.
//
