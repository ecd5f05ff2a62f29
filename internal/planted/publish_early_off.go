//go:build !planted_publish_early

package planted

// PublishEarly makes a host publish a snapshot before its log is durable through it.
const PublishEarly = false
