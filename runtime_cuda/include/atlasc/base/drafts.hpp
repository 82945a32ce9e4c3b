// New files and folders: they appear under their name whole and synced, or not at all.
//
// A draft lies beside its output under a random name, locked by who makes it. What a killed run
// left has no lock, and the next draft in the same folder removes it. Outputs are never replaced.
#pragma once

#include <string>

#include "atlasc/base/files.hpp"

namespace atlasc {

class Draft {
public:
    enum class Kind { file, folder };

    /// Throws Error: the output exists, or nothing can be made beside it.
    Draft(std::string output, Kind kind, Access access);
    Draft(const Draft&) = delete;
    Draft& operator=(const Draft&) = delete;
    ~Draft();

    /// Where it lies until it is published.
    const std::string& place() const { return place_; }

    /// Append to a file. Throws Error.
    void write(const void* data, std::size_t size);

    /// Gives it its name. Throws Error: the output exists by now, or the disk does not take it.
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
