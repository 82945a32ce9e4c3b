// New files and folders: they appear under their names whole and synced, or not at all.
//
// A draft lies beside its output under a random name, and its maker holds a lock on it. A draft
// that a killed run left has no lock; the next draft in the same folder removes it. Outputs are
// never replaced.
#pragma once

#include <string>

#include "atlasc/base/files.hpp"

namespace atlasc {

class Draft {
public:
    enum class Kind { file, folder };

    /// Throws Error: the output exists, or no file can be made beside it.
    Draft(std::string output, Kind kind, Access access);
    Draft(const Draft&) = delete;
    Draft& operator=(const Draft&) = delete;
    ~Draft();

    /// Path of the draft until it is published.
    const std::string& place() const { return place_; }

    /// Append to a file. Throws Error.
    void write(const void* data, std::size_t size);

    /// Move the draft to its name. Throws Error: the output exists by now, or the disk fails.
    void publish();

private:
    void make();

    std::string output_;
    std::string place_;
    Kind kind_;
    Access access_;
    Descriptor lock_;
};

/// Refuse a file that exists, before any work is done for it.
void require_new(const std::string& path);

/// Write a new file, which appears whole or not at all.
void write_new(const std::string& path, const void* data, std::size_t size, Access access);

}  // namespace atlasc
