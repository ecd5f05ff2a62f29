//go:build !linux

package rig

import "errors"

func (m *Member) forget() error { return errors.ErrUnsupported }
