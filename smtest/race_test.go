//go:build race

package smtest

const raceDetector = true
