//! Image formats: how many bytes a pixel takes.
#![allow(non_upper_case_globals, reason = "CL_Rx and its like have these names in C")]

use telecl_sys::*;

/// Bytes of one pixel; `None` for a format that OpenCL does not know.
pub(super) fn element_size(format: &cl_image_format) -> Option<u64> {
    let channels: u64 = match format.image_channel_order {
        CL_R | CL_A | CL_INTENSITY | CL_LUMINANCE | CL_DEPTH | CL_Rx => 1,
        CL_RG | CL_RA | CL_RGx => 2,
        CL_RGB | CL_RGBx | CL_sRGB => 3,
        CL_RGBA | CL_BGRA | CL_ARGB | CL_ABGR | CL_sRGBA | CL_sBGRA | CL_sRGBx => 4,
        _ => return None,
    };
    Some(match format.image_channel_data_type {
        CL_SNORM_INT8 | CL_UNORM_INT8 | CL_SIGNED_INT8 | CL_UNSIGNED_INT8 => channels,
        CL_SNORM_INT16 | CL_UNORM_INT16 | CL_SIGNED_INT16 | CL_UNSIGNED_INT16 | CL_HALF_FLOAT => 2 * channels,
        CL_SIGNED_INT32 | CL_UNSIGNED_INT32 | CL_FLOAT => 4 * channels,
        // Packed: the whole pixel is one word, with three or four channels.
        CL_UNORM_SHORT_565 | CL_UNORM_SHORT_555 if channels == 3 => 2,
        CL_UNORM_INT_101010 if channels == 3 => 4,
        CL_UNORM_INT_101010_2 if channels == 4 => 4,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_have_the_size_of_their_channels() {
        let size = |image_channel_order, image_channel_data_type| {
            element_size(&cl_image_format { image_channel_order, image_channel_data_type })
        };
        assert_eq!(size(CL_RGBA, CL_FLOAT), Some(16));
        assert_eq!(size(CL_R, CL_UNORM_INT8), Some(1));
        assert_eq!(size(CL_RGB, CL_UNORM_SHORT_565), Some(2));
        assert_eq!(size(CL_BGRA, CL_UNSIGNED_INT8), Some(4));
        assert_eq!(size(CL_R, CL_UNORM_SHORT_565), None);
        assert_eq!(size(0, CL_FLOAT), None);
        assert_eq!(size(CL_RGBA, 0), None);
    }
}
