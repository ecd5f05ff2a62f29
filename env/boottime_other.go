//go:build !linux

package env

import "time"

func (c realClock) boottime() time.Duration { return c.Now() }
