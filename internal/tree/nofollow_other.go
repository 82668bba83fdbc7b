//go:build !unix

package tree

// noFollow is not known there: os.Root still keeps within the directory.
const noFollow = 0
