// Prints what ctypes must agree with: the layout of CUVIDDECODECAPS and the numbers of the constants used.
#include <ffnvcodec/dynlink_cuda.h>
#include <ffnvcodec/dynlink_nvcuvid.h>
#include <stddef.h>
#include <stdio.h>

#define FIELD(name) printf("%s %zu\n", #name, offsetof(CUVIDDECODECAPS, name))

int main(void) {
  printf("sizeof %zu\n", sizeof(CUVIDDECODECAPS));
  FIELD(eCodecType);
  FIELD(eChromaFormat);
  FIELD(nBitDepthMinus8);
  FIELD(reserved1);
  FIELD(bIsSupported);
  FIELD(nNumNVDECs);
  FIELD(nOutputFormatMask);
  FIELD(nMaxWidth);
  FIELD(nMaxHeight);
  FIELD(nMaxMBCount);
  FIELD(nMinWidth);
  FIELD(nMinHeight);
  FIELD(bIsHistogramSupported);
  FIELD(nCounterBitDepth);
  FIELD(nMaxHistogramBins);
  FIELD(reserved3);
  printf("codec h264 %d\ncodec hevc %d\ncodec vp9 %d\ncodec av1 %d\n", cudaVideoCodec_H264, cudaVideoCodec_HEVC,
         cudaVideoCodec_VP9, cudaVideoCodec_AV1);
  printf("chroma 4:2:0 %d\nchroma 4:4:4 %d\n", cudaVideoChromaFormat_420, cudaVideoChromaFormat_444);
  printf("attribute multiprocessors %d\nattribute major %d\nattribute minor %d\n",
         CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
         CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  return 0;
}
