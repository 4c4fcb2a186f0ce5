/* What the delegate's blob says: written by tinyai/frontends/executorch/blob.py, read whole or refused.

   Numbers are little-endian. A text is its bytes (u32), the bytes, and a zero.

     8 bytes  "TINYAIET"
     u32      version
     u32      bytes of the blob
     u32      CRC-32 of all of it but these four bytes
     u32      CRC-32 of the library, 0 for a network that is linked
     u64      bytes of the library, 0 for a network that is linked
     u32      inputs, u32 outputs, u32 layers with a name
     text     the library's key in the named data, or the hash of the package
     text     the entry, or the name of the package
     ports    inputs, then outputs: u8 dtype, u8 rank, u8 dim order of each axis, u32 size of each
     layers   u32 number, text name; ascending */
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace tinyai {

constexpr uint32_t kVersion = 2;
constexpr size_t kMostAxes = 16;

/* An input or output. */
struct Port {
  uint8_t dtype = 0;
  std::vector<uint8_t> dim_order;
  std::vector<uint32_t> sizes;
  size_t element_bytes = 0;
};

struct Layer {
  uint32_t number = 0;
  std::string name;
};

struct Blob {
  uint32_t library_crc = 0;
  uint64_t library_bytes = 0;
  std::string key;
  std::string entry;
  std::vector<Port> inputs;
  std::vector<Port> outputs;
  std::vector<Layer> layers;
};

/* CRC-32 as in zlib, eight bytes at a time. */
class Crc32 {
 public:
  Crc32() {
    for (uint32_t byte = 0; byte < 256; ++byte) {
      uint32_t crc = byte;
      for (int bit = 0; bit < 8; ++bit) {
        crc = (crc >> 1) ^ (crc & 1 ? 0xEDB88320u : 0);
      }
      table_[0][byte] = crc;
    }
    for (uint32_t byte = 0; byte < 256; ++byte) {
      for (int row = 1; row < 8; ++row) {
        const uint32_t before = table_[row - 1][byte];
        table_[row][byte] = (before >> 8) ^ table_[0][before & 255];
      }
    }
  }

  uint32_t of(const uint8_t* data, size_t bytes, uint32_t crc = 0) const {
    crc = ~crc;
    for (; bytes >= 8; bytes -= 8, data += 8) {
      const uint32_t low = crc ^ u32(data);
      const uint32_t high = u32(data + 4);
      crc = table_[7][low & 255] ^ table_[6][low >> 8 & 255] ^
          table_[5][low >> 16 & 255] ^ table_[4][low >> 24] ^
          table_[3][high & 255] ^ table_[2][high >> 8 & 255] ^
          table_[1][high >> 16 & 255] ^ table_[0][high >> 24];
    }
    for (; bytes > 0; --bytes, ++data) {
      crc = (crc >> 8) ^ table_[0][(crc ^ *data) & 255];
    }
    return ~crc;
  }

 private:
  static uint32_t u32(const uint8_t* data) {
    return data[0] | data[1] << 8 | data[2] << 16 | uint32_t(data[3]) << 24;
  }

  uint32_t table_[8][256];
};

inline uint32_t crc32(const void* data, size_t bytes, uint32_t before = 0) {
  static const Crc32 table;
  return table.of(static_cast<const uint8_t*>(data), bytes, before);
}

/* Reads numbers and texts, until something does not fit. */
class Reader {
 public:
  Reader(const uint8_t* data, size_t bytes) : data_(data), bytes_(bytes) {}

  uint64_t number(size_t bytes) {
    uint64_t value = 0;
    if (!has(bytes)) {
      return 0;
    }
    for (size_t at = 0; at < bytes; ++at) {
      value |= uint64_t(data_[at_ + at]) << (8 * at);
    }
    at_ += bytes;
    return value;
  }

  uint32_t u32() {
    return static_cast<uint32_t>(number(4));
  }

  std::string text() {
    const size_t bytes = u32();
    if (!has(bytes) || !has(bytes + 1) || data_[at_ + bytes] != 0) {
      fits_ = false;
      return "";
    }
    const std::string found(reinterpret_cast<const char*>(data_ + at_), bytes);
    at_ += bytes + 1;
    fits_ = fits_ && std::strlen(found.c_str()) == bytes;
    return found;
  }

  /* A text that can be shown: graphic characters of ASCII. */
  std::string name() {
    const std::string found = text();
    for (const char each : found) {
      fits_ = fits_ && each > ' ' && each < 127;
    }
    return found;
  }

  /* Whether so many things, of a byte at least, may follow. */
  bool has(size_t things) {
    fits_ = fits_ && things <= bytes_ - at_;
    return fits_;
  }

  bool through() const {
    return fits_ && at_ == bytes_;
  }

  void refuse() {
    fits_ = false;
  }

 private:
  const uint8_t* data_;
  size_t bytes_;
  size_t at_ = 0;
  bool fits_ = true;
};

/* A type in C of one of ExecuTorch's scalar types, and its bytes: 0 for those that tinyai has not. */
struct CType {
  const char* name;
  size_t bytes;
};

inline CType c_type(uint8_t dtype) {
  constexpr CType types[] = {
      {"uint8_t", 1}, {"int8_t", 1}, {"int16_t", 2}, {"int32_t", 4}, {"int64_t", 8}, {"", 0}, {"float", 4}};
  return dtype < sizeof types / sizeof *types ? types[dtype] : CType{"", 0};
}

inline Port read_port(Reader& reader) {
  Port port;
  port.dtype = static_cast<uint8_t>(reader.number(1));
  port.element_bytes = c_type(port.dtype).bytes;
  const size_t rank = reader.number(1);
  if (rank > kMostAxes || port.element_bytes == 0) {
    reader.refuse();
    return port;
  }
  for (size_t axis = 0; axis < rank; ++axis) {
    port.dim_order.push_back(static_cast<uint8_t>(reader.number(1)));
  }
  for (size_t axis = 0; axis < rank; ++axis) {
    port.sizes.push_back(reader.u32());
    if (port.dim_order[axis] >= rank) {
      reader.refuse();
    }
  }
  return port;
}

inline std::string text(const std::vector<Port>& ports) {
  std::string all;
  for (const Port& port : ports) {
    std::string sizes;
    for (const uint8_t axis : port.dim_order) {
      if (port.sizes[axis] != 1) {
        sizes += (sizes.empty() ? "" : ",") + std::to_string(port.sizes[axis]);
      }
    }
    all += (all.empty() ? "" : " ") + std::string(c_type(port.dtype).name) + "[" + sizes + "]";
  }
  return all;
}

/* What the code of a blob has to read and write, as the code says it itself (network.h). */
inline std::string signature(const Blob& blob) {
  return text(blob.inputs) + " -> " + text(blob.outputs);
}

/* What a blob says; returns what is wrong with it, or NULL. */
inline const char* read_blob(const void* data, size_t bytes, Blob& blob) {
  const auto* content = static_cast<const uint8_t*>(data);
  constexpr size_t kCrc = 16; /* where it is */
  if (bytes < kCrc + 4 || std::memcmp(content, "TINYAIET", 8) != 0) {
    return "it is no blob of tinyai's";
  }
  Reader reader(content + 8, bytes - 8);
  if (reader.u32() != kVersion) {
    return "another version of tinyai wrote it: lower the model again";
  }
  const size_t size = reader.u32();
  const uint32_t crc = reader.u32();
  if (size != bytes ||
      crc32(content + kCrc + 4, bytes - kCrc - 4, crc32(content, kCrc)) != crc) {
    return "it was cut off or altered";
  }
  blob.library_crc = reader.u32();
  blob.library_bytes = reader.number(8);
  const uint32_t inputs = reader.u32();
  const uint32_t outputs = reader.u32();
  const uint32_t layers = reader.u32();
  blob.key = reader.name();
  blob.entry = reader.name();
  for (uint32_t port = 0; port < inputs && reader.has(1); ++port) {
    blob.inputs.push_back(read_port(reader));
  }
  for (uint32_t port = 0; port < outputs && reader.has(1); ++port) {
    blob.outputs.push_back(read_port(reader));
  }
  for (uint32_t layer = 0; layer < layers && reader.has(1); ++layer) {
    const uint32_t number = reader.u32();
    blob.layers.push_back({number, reader.text()});
  }
  return reader.through() ? nullptr : "it makes no sense";
}

} // namespace tinyai
