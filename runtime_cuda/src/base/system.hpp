// What differs between Linux and macOS: no other file asks for the system.
#pragma once

#include <cstddef>
#include <cstdint>

/// The directive of the assembler for constants that may not be written.
#ifdef __APPLE__
#define ATLASC_READ_ONLY_SECTION ".section __TEXT,__const\n"
#else
#define ATLASC_READ_ONLY_SECTION ".section .rodata\n"
#endif

namespace atlasc::system {

/// Keep the memory of this process from core dumps, even those that a program of the system takes.
void forbid_core_dumps();

/// Random bytes of the kernel. Returns how many there are now, or -1 with `errno`.
long random_some(void* to, std::size_t size);

/// Overwrite bytes, in a way that no compiler leaves out.
void wipe(void* bytes, std::size_t size);

/// Bring what was written to a file or folder to the disk. Returns 0, or -1 with `errno`.
int flush(int descriptor);

enum class Renamed { done, failed, unsupported };

/// Rename without replacing anything. `failed`: `errno` says why. `unsupported`: the file system
/// cannot do it.
Renamed rename_new(const char* from, const char* to);

/// Fresh pages of memory, zeros; null where there are none.
void* map_pages(std::size_t bytes);
void unmap_pages(void* start, std::size_t bytes);

/// Advise the system to hold this memory in large pages.
void prefer_large_pages(void* start, std::size_t bytes);

/// Bytes that the system could give to this process without swapping; 2^64 - 1 where it does not
/// tell.
std::uint64_t available_bytes();

}  // namespace atlasc::system
